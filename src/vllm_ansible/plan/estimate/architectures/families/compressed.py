"""DeepSeek-V4: latent attention over a window and over compressed tokens, experts in fp4.

Read from vLLM 0.32 (`models/deepseek_v4`): queries and outputs are of low rank, outputs in groups;
each layer keeps a window whole and one entry for every `compress_ratio` tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    INDEX_TOKENS,
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import KvCache, Model, Page, Tensor

SCALE_BYTES = 8
# Tokens of a block, of compressed entries and of the window, and to what a page is padded.
BLOCK, WINDOW_BLOCK, ALIGNMENT = 256, 64, 576
ROTATED_BYTES = 2


@frozen
class Compressed:
    """Attention of one layer; a `ratio` of 1 keeps the window alone, 4 has an indexer."""

    hidden: int
    heads: int
    head_size: int
    rope_size: int
    query_rank: int
    output_rank: int
    groups: int
    window: int
    ratio: int
    index_heads: int
    index_size: int

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield projections, sinks, compressor and indexer."""
        heads, groups = Cut("column", self.heads), Cut("column", self.groups)
        wide, rank = self.heads * self.head_size, self.groups * self.output_rank
        fused = self.query_rank + self.head_size
        yield from parts.linear("attn.wq_a", self.hidden, fused, WHOLE, "attention")
        yield parts.vector("attn.q_norm", self.query_rank)
        yield parts.vector("attn.kv_norm", self.head_size)
        yield from parts.linear("attn.wq_b", self.query_rank, wide, heads, "attention")
        yield from parts.linear("attn.wo_a", wide // self.groups, rank, groups, "attention")
        row = Cut("row", self.groups)
        yield from parts.linear("attn.wo_b", rank, self.hidden, row, "attention")
        yield parts.vector("attn.attn_sink", self.heads, "attention", heads, 4)
        if self.ratio > 1:
            yield from self._compressor(parts, "attn.compressor", self.head_size)
        if self.ratio == 4:
            keys = self.index_heads * self.index_size
            name = "attn.indexer"
            yield from parts.linear(f"{name}.wq_b", self.query_rank, keys, WHOLE, "attention")
            yield parts.plain_linear(
                f"{name}.weights_proj", self.hidden, self.index_heads, WHOLE, "attention"
            )
            yield from self._compressor(parts, f"{name}.compressor", self.index_size)

    def _compressor(self, parts: Parts, name: str, size: int) -> Iterator[Tensor]:
        wide = size * (2 if self.ratio == 4 else 1)
        yield parts.vector(f"{name}.ape", self.ratio * wide, "attention", width=4)
        yield parts.plain_linear(f"{name}.wkv_wgate", self.hidden, 2 * wide, WHOLE, "attention")
        yield parts.vector(f"{name}.norm", size)

    def cache(self) -> KvCache:
        """Return the entry of fp8 with its rotated part in 16 bits, and the pages of all caches."""
        entry = self.head_size - self.rope_size + ROTATED_BYTES * self.rope_size + SCALE_BYTES
        kept = self.window * entry
        if self.ratio == 1:
            pages = (padded_page(WINDOW_BLOCK, entry, self.window),)
            return KvCache("sliding", 1, entry, 0, self.window, kept, 0, 1, entry, pages)
        overlap = 2 if self.ratio == 4 else 1
        partial = overlap * self.ratio * 2 * overlap * self.head_size * 4
        keys = (self.index_size + self.index_size // 128 * 4) / self.ratio
        return KvCache(
            "mla",
            1,
            entry,
            0,
            state_bytes=kept + partial,
            extra_bytes_per_token=keys if self.ratio == 4 else 0,
            tokens_per_state=self.ratio,
            entry_bytes=entry,
            pages=tuple(self._pages(entry)),
        )

    def _pages(self, entry: int) -> Iterator[Page]:
        """Yield compressed entries, the window, and what the compressors have not compressed yet.

        A compressor keeps a key and a score of fp32 for each token, twice where parts overlap.
        """
        states = BLOCK // self.ratio
        yield padded_page(states, entry, None, BLOCK)
        yield padded_page(WINDOW_BLOCK, entry, self.window)
        if self.ratio == 4:
            yield padded_page(states, self.index_size + self.index_size // 128 * 4, None, BLOCK)
            yield padded_page(4, 2 * 2 * 4 * self.head_size, 2 * self.ratio)
            yield padded_page(4, 2 * 2 * 4 * self.index_size, 2 * self.ratio)
        else:
            yield padded_page(8, 2 * 4 * self.head_size, self.ratio)


def padded_page(states: int, size: int, window: int | None, tokens: int = 0) -> Page:
    """Return a page of so many states; pages are padded to what the kernels' layout needs."""
    return Page(tokens or states, ceil(states * size / ALIGNMENT) * ALIGNMENT, window)


def deepseek_v4(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return DeepSeek-V4; the first `num_hash_layers` route by a table over the vocabulary."""
    config = outline.config
    layers, hidden = layer_count(config), config.count("hidden_size")
    ratios = config.items("compress_ratios")
    if len(ratios) < layers or not all(ratio in (0, 1, 4, 128) for ratio in ratios[:layers]):
        raise config.problem(
            f"compress_ratios has {len(ratios)} entries for {layers} layers",
            "0, 1, 4 or 128 for each layer",
        )
    hashed = config.size("num_hash_layers")
    blocks = [
        _block(config, hidden, max(1, ratio), index < hashed)
        for index, ratio in enumerate(ratios[:layers])
    ]
    chosen = INDEX_TOKENS * config.size("index_topk", 1)
    streams = config.size("hc_mult", 1)
    mixed = streams * streams * hidden
    outline = replace(
        outline,
        layers_at="layers",
        rotary_sizes=(config.count("qk_rope_head_dim"),) * 2,
        rotary_width=4,
    )
    model = decoder(
        outline,
        blocks,
        others=others,
        head=(Tensor("hc_head", mixed, 4 * mixed, "replicated", "head"),),
        buffers=(Tensor("topk_indices", chosen, 4 * chosen, "replicated", "other"),),
    )
    # A rank has whole groups of outputs.
    return replace(model, tensor_divides=config.count("o_groups"))


def attention_sizes(config: Settings) -> dict[str, int]:
    """Return what the attention of every layer has in common, as `Compressed` takes it."""
    return {
        "heads": config.count("num_attention_heads"),
        "head_size": config.count("head_dim"),
        "rope_size": config.count("qk_rope_head_dim"),
        "query_rank": config.count("q_lora_rank"),
        "output_rank": config.count("o_lora_rank"),
        "groups": config.count("o_groups"),
        "window": config.count("sliding_window"),
        "index_heads": config.count("index_n_heads"),
        "index_size": config.count("index_head_dim"),
    }


def _block(config: Settings, hidden: int, ratio: int, hashed: bool) -> Block:
    inner, several = config.count("moe_intermediate_size"), config.size("n_shared_experts")
    shared = Dense(hidden, inner * several, module="ffn.shared_experts", role="shared_expert")
    chosen = config.count("num_experts_per_tok")
    experts = Experts(
        hidden,
        inner,
        config.count("n_routed_experts"),
        chosen,
        shared=shared if several else None,
        score_bias=not hashed,
        module="ffn",
    )
    attention = Compressed(
        hidden=hidden,
        ratio=ratio,
        **attention_sizes(config),
    )
    streams = config.size("hc_mult", 1)
    mixing = (2 + streams) * streams
    singles = {f"hc_{one}_fn": mixing * streams * hidden for one in ("attn", "ffn")}
    if hashed:
        singles["gate.tid2eid"] = config.count("vocab_size") * chosen
    return Block(attention, (experts,), 2, {}, singles)
