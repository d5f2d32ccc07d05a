"""DeepSeek-V4.1: as V4 in its layers, but a few of them compress and choose for all others.

Read from vLLM 0.32 (`models/deepseek_v41`): each layer keeps a window; `kv_source_layer_ids` keep
compressed entries and keys of an indexer beside, `index_source_layer_ids` choose among them. Tables
of n-grams are in host memory. Entries have the size that Hopper's kernels read: those of B200 have
288 bytes in place of 584.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings, brief
from vllm_ansible.plan.estimate.architectures.families.compressed import (
    BLOCK,
    ROTATED_BYTES,
    SCALE_BYTES,
    Compressed,
    attention_sizes,
    padded_page,
)
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

GIB = 2**30
# Tokens of a page of a window, and entries of the ring that keeps what is not compressed yet.
WINDOW_BLOCK, RING = 32, 8
# Bytes of a row of n-grams for each 32 numbers: one each, and a scale.
ROW_BLOCK = 32


@frozen
class Sourced(Compressed):
    """Attention of one layer, which `compresses` so many tokens to an entry (0: none).

    It may be one that `chooses` the `budget` entries of the layers after it. With `letters` so many
    numbers of n-grams are projected into its `streams`.
    """

    compresses: int = 0
    chooses: bool = False
    budget: int = 0
    letters: int = 0
    streams: int = 1

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections, then the compressor, the indexer and what joins n-grams."""
        yield from Compressed.tensors(self, parts)
        if self.compresses:
            wide = self.head_size * (2 if self.compresses > 1 else 1)
            name = "attn.compressor"
            yield parts.plain_linear(f"{name}.wkv_wgate", self.hidden, wide, WHOLE, "attention")
            yield parts.vector(f"{name}.norm", self.head_size)
        if self.chooses:
            keys, name = self.index_heads * self.index_size, "attn.indexer"
            yield from parts.linear(f"{name}.wq_b", self.query_rank, keys, WHOLE, "attention")
            yield parts.plain_linear(
                f"{name}.weights_proj", self.hidden, self.index_heads, WHOLE, "attention"
            )
        if self.chooses and self.compresses:
            yield parts.plain_linear(
                f"{name}.wk", self.head_size, self.index_size, WHOLE, "attention"
            )
            yield parts.vector(f"{name}.k_norm", self.index_size)
        if self.letters:
            wide = self.hidden * (self.streams + 1)
            column = Cut("column", wide)
            yield from parts.linear("engram.wkv", self.letters, wide, column, "attention")
            yield parts.vector("engram.weights", 2 * self.streams * self.hidden)

    def cache(self) -> KvCache:
        """Return what it keeps; a layer after a source reads the chosen entries of that one."""
        entry = self.head_size - self.rope_size + ROTATED_BYTES * self.rope_size + SCALE_BYTES
        window = padded_page(WINDOW_BLOCK, entry, self.window)
        if not self.compresses:
            read = self.budget * entry
            return KvCache("sliding", 1, entry, 0, self.window, read, 0, 1, entry, (window,))
        key = self.index_size + self.index_size // 128 * 4
        states = BLOCK // self.compresses
        ring = 2 * self.head_size * 4
        return KvCache(
            "mla",
            1,
            entry,
            0,
            state_bytes=self.window * entry,
            extra_bytes_per_token=key / self.compresses,
            tokens_per_state=self.compresses,
            entry_bytes=entry,
            pages=(
                window,
                padded_page(states, entry, None, BLOCK),
                padded_page(states, key, None, BLOCK),
                *((Page(RING, RING * ring, 0),) if self.compresses > 1 else ()),
            ),
        )


def deepseek_v41(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder without the layers that only propose tokens."""
    config = outline.config
    layers = layer_count(config)
    ratios = config.items("compress_ratios")
    if len(ratios) < layers:
        raise config.problem(
            f"compress_ratios has {len(ratios)} entries for {layers} layers",
            "0, 1 or 2 for each layer",
        )
    if odd := [ratio for ratio in ratios[:layers] if ratio not in (0, 1, 2)]:
        raise config.problem(f"compress_ratios has {brief(odd[0])}, not 0, 1 or 2")
    first = next((index for index in range(layers) if ratios[index]), None)
    if first is not None and first not in config.numbers("kv_source_layer_ids"):
        raise config.problem(f"layer {first} compresses, and no kv_source_layer_ids is before it")
    tables = config.numbers("engram_layer_ids")
    heads = config.count("engram_n_heads", default=1) if tables else 0
    columns = heads * (config.count("engram_max_ngram_size", default=2) - 1)
    width = config.count("engram_head_dim", default=1) if tables else 0
    blocks = [_block(config, index, ratios[index], columns * width) for index in range(layers)]
    chosen = INDEX_TOKENS * config.count("index_topk")
    candidates = INDEX_TOKENS * config.size("candidate_topk_blocks")
    rows = len(tables) * INDEX_TOKENS * columns * width
    buffers = [
        Tensor("topk_indices", chosen, 4 * chosen, "replicated", "other"),
        Tensor("candidate_blocks", candidates, 4 * candidates, "replicated", "other"),
    ]
    if rows:
        buffers.append(Tensor("staged_rows", rows, 2 * rows, "column", "other", columns))
    outline = replace(
        outline,
        layers_at="layers",
        rotary_sizes=(config.count("qk_rope_head_dim"),) * 2,
        rotary_width=4,
        assumed=(*outline.assumed, *_notes(config, width)),
    )
    model = decoder(outline, blocks, others=others, buffers=buffers)
    # Layers that share a source's entries must be on its stage: stages are not planned.
    return replace(model, whole=True, tensor_divides=config.count("o_groups"))


def _block(config: Settings, index: int, ratio: int, letters: int) -> Block:
    hidden, inner = config.count("hidden_size"), config.count("moe_intermediate_size")
    several, count = config.size("n_shared_experts"), config.count("n_routed_experts")
    shared = Dense(hidden, inner * several, module="ffn.shared_experts", role="shared_expert")
    experts = Experts(
        hidden,
        inner,
        count,
        config.count("num_experts_per_tok"),
        shared=shared if several else None,
        score_bias=True,
        module="ffn",
    )
    streams = config.size("hc_mult", 1)
    source = index in config.numbers("kv_source_layer_ids")
    attention = Sourced(
        hidden=hidden,
        ratio=1,
        **attention_sizes(config),
        compresses=ratio if source else 0,
        chooses=index in config.numbers("index_source_layer_ids"),
        budget=config.count("index_topk") if ratio else 0,
        letters=letters if index in config.numbers("engram_layer_ids") else 0,
        streams=streams,
    )
    mixing = (2 + streams) * streams
    singles = {f"hc_{one}_fn": mixing * streams * hidden for one in ("attn", "ffn")}
    singles |= {f"hc_{one}_rest": mixing + 3 for one in ("attn", "ffn")}
    # Tokens of images are corrected apart.
    singles["gate.bias_vl"] = count
    return Block(attention, (experts,), 2, {}, singles)


def _notes(config: Settings, width: int) -> Iterator[str]:
    rows = config.numbers("engram_num_embeddings")
    if rows:
        size = sum(rows) * (width + width // ROW_BLOCK)
        yield (
            f"{size / GIB:.0f} GiB of n-grams are in host memory, divided by tensor parallelism, "
            "unless the engine's cpu_offload is switched off"
        )
    yield "the cache is that of Hopper's kernels; those of B200 hold an entry in half the bytes"


def tower(config: Settings, vision: Settings, hidden: int, parts: Parts) -> Iterator[Tensor]:
    """Yield the tower and what joins patches to tokens; its norms are in fp32."""
    size, inner = vision.count("hidden_size"), vision.count("intermediate_size")
    heads = Cut("column", vision.count("num_attention_heads"))
    row = Cut("row", heads.units)

    def made(name: str, inputs: int, outputs: int, cut: Cut, bias: bool) -> Iterator[Tensor]:
        yield parts.vector(f"vision.{name}", inputs * outputs, "vision", cut)
        if bias:
            split = cut if cut.shard == "column" else WHOLE
            yield parts.vector(f"vision.{name}.bias", outputs, "vision", split)

    yield from made("patch", 3 * vision.count("patch_size") ** 2, size, WHOLE, True)
    layers = layer_count(vision)
    for number in range(layers):
        name = f"blocks.{number}"
        yield from made(f"{name}.wqkv", size, 3 * size, heads, True)
        yield from made(f"{name}.wo", size, size, row, True)
        yield from made(f"{name}.w1", size, 2 * inner, heads, False)
        yield from made(f"{name}.w2", inner, size, row, False)
    yield parts.vector("vision.norms", (2 * layers + 1) * size, "vision", width=4)
    merged = size * vision.count("downsample_ratio", default=3) ** 2
    yield from made("aligner.w1", merged, hidden, heads, True)
    yield from made("aligner.w2", hidden, hidden, row, True)
