"""Qwen4-Exp: Qwen3.5's layers in several streams of residuals, sparse attention, n-grams.

Read from vLLM 0.32's `vllm.models.qwen4_exp`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    INDEX_TOKENS,
    Block,
    Outline,
    decoder,
)
from vllm_ansible.plan.estimate.architectures.families.hybrid import qwen_blocks
from vllm_ansible.plan.estimate.architectures.families.llama import head_size, rotated
from vllm_ansible.plan.estimate.architectures.families.mixture import ENDS
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Parts
from vllm_ansible.plan.estimate.architectures.families.recurrent import DeltaNet
from vllm_ansible.plan.estimate.architectures.model import KvCache, Model, Tensor

GIB = 2**30
# The rows of what each block reads of the streams, padded for its product.
ROWS = 16


@frozen
class Chosen(Grouped):
    """Grouped attention to the tokens of blocks that an indexer chooses by a key for each block."""

    index_heads: int = 0
    index_size: int = 0
    pool: int = 1

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections and norms, and those of the indexer."""
        yield from Grouped.tensors(self, parts)
        name, wide = f"{self.module}.indexer", self.index_heads * self.index_size
        yield from parts.linear(f"{name}.index_qk_proj", self.hidden, wide, WHOLE, "attention")
        yield parts.vector(f"{name}.norms", 2 * self.index_size)

    def cache(self) -> KvCache:
        """Return keys and values, and a token's part of its block's key in 16 bits."""
        return replace(Grouped.cache(self), extra_bytes_per_token=2 * self.index_size / self.pool)


def qwen4_exp(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; the tables of n-grams are in host memory, where vLLM places them."""
    config = outline.config
    streams = config.count("hc_count", default=4)
    wide, rank = streams * config.count("hidden_size"), config.count("hc_lowrank", default=320)
    rows = -(-(rank + streams) // ROWS) * ROWS
    names = [f"{part}_hyper_connection" for part in ("attn", "mlp")]
    mixing = dict.fromkeys(names, wide * (1 + rows + rank))
    lettered = set(config.numbers("ple_layer_ids"))
    blocks = [
        _block(config, block, mixing, index + 1 in lettered)
        for index, block in enumerate(qwen_blocks(outline, "indexed_attention"))
    ]
    parts = Parts(outline.quantization, "")
    mixer = parts.vector("hyper_connection_mixer", wide * (1 + 2 * rank))
    outline = replace(
        outline,
        everywhere=ENDS,
        rotary_sizes=(rotated(config, head_size(config)),),
        assumed=(*outline.assumed, *_notes(outline, len(lettered))),
    )
    model = decoder(outline, blocks, others=others, head=[mixer], buffers=_choices(config, blocks))
    # The last mixing of the streams takes the place of a norm.
    head = tuple(one for one in model.head if one.name != "norm")
    return replace(model, head=head, whole=bool(lettered))


def _block(config: Settings, block: Block, mixing: Mapping[str, int], lettered: bool) -> Block:
    """Return a layer of Qwen3.5 without its norms, in streams."""
    attention, extras = block.attention, dict(mixing)
    if isinstance(attention, Grouped) and "indexer_n_heads" in config:
        attention = Chosen(
            **{name: getattr(attention, name) for name in Grouped.__dataclass_fields__},
            index_heads=config.count("indexer_n_heads") + config.count("indexer_kv_heads"),
            index_size=config.count("indexer_head_dim"),
            pool=config.count("indexer_compress_ratio"),
        )
    if lettered and isinstance(attention, DeltaNet):
        hidden = config.count("hidden_size")
        wide = hidden * config.count("hc_count", default=4)
        kernel = config.count("ple_conv_kernel_size", default=4)
        embedded = config.count("ple_embed_dim", default=hidden)
        extras["ple"] = embedded * (wide + hidden) + wide * (3 + kernel)
    return replace(block, attention=attention, norms=0, extras=extras)


def _choices(config: Settings, blocks: list[Block]) -> Iterator[Tensor]:
    """Yield the choices of each sparse layer, which has a buffer of its own."""
    layers = sum(isinstance(one.attention, Chosen) for one in blocks)
    if layers:
        width = config.count("indexer_budget") + config.count("indexer_compress_ratio")
        chosen = layers * INDEX_TOKENS * width
        yield Tensor("chosen_tokens", chosen, chosen * 4, "replicated", "other")


def _notes(outline: Outline, tables: int) -> Iterator[str]:
    """Yield what is taken for granted; a checkpoint in FP8 or FP4 may store its n-grams so, too."""
    config, quantization = outline.config, outline.quantization
    if "indexer_n_heads" in config:
        yield "rates are those of attention to all tokens, of which Qwen4-Exp chooses some"
    if tables:
        size = config.count("ngram_size", default=3)
        if size < 2:
            raise config.problem(f"the model's ngram_size is {size}, not 2 or more")
        heads = config.count("heads_per_ngram", default=8) * (size - 1)
        width = config.count("ple_embed_dim", default=config.count("hidden_size")) // heads
        rows = heads * config.count("ngram_vocab_size_base", default=20_000_000)
        most = "" if quantization.linear == quantization.plain else "up to "
        yield (
            f"{most}{tables * rows * width * 2 / GIB:.0f} GiB of n-grams are in host memory, "
            "divided by tensor parallelism, unless the engine's cpu_offload is switched off"
        )
