"""Attention by its mechanism: grouped queries, or latent with a sparse indexer.

What each one splits, replicates and caches is read from vLLM 0.32: `QKVParallelLinear`,
`DeepseekV2MLAAttention` and `Indexer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import KvCache, Tensor

QkNorm = Literal["none", "head", "full"]


@frozen
class Grouped:
    """Attention whose query heads share KV heads.

    `gate` doubles the queries by an output gate, `head_gate` has one number for each head; `sinks`
    are one number per query head; `window` bounds what is seen. With `reused` the layer takes keys
    and values of an earlier one. `value_size` is the size of a value where it is not that of a key.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: QkNorm = "none"
    gate: bool = False
    head_gate: bool = False
    sinks: bool = False
    window: int | None = None
    reused: bool = False
    module: str = "self_attn"
    value_size: int = 0

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections and norms."""
        name, size = self.module, self.head_size
        values = self.value_size or size
        queries = Cut("column", self.heads)
        keys = Cut("kv", self.kv_heads)
        wide = self.heads * size * (2 if self.gate else 1)
        yield from parts.linear(
            f"{name}.q_proj", self.hidden, wide, queries, "attention", bias=self.qkv_bias
        )
        if not self.reused:
            for one, each in (("k_proj", size), ("v_proj", values)):
                yield from parts.linear(
                    f"{name}.{one}",
                    self.hidden,
                    self.kv_heads * each,
                    keys,
                    "attention",
                    bias=self.qkv_bias,
                )
        yield from parts.linear(
            f"{name}.o_proj",
            self.heads * values,
            self.hidden,
            Cut("row", self.heads),
            "attention",
            bias=self.output_bias,
        )
        if self.qk_norm == "head":
            yield parts.vector(f"{name}.q_norm", size)
            if not self.reused:
                yield parts.vector(f"{name}.k_norm", size)
        elif self.qk_norm == "full":
            yield parts.vector(f"{name}.q_norm", self.heads * size, "norm", queries)
            yield parts.vector(f"{name}.k_norm", self.kv_heads * size, "norm", keys)
        if self.head_gate:
            yield from parts.linear(f"{name}.g_proj", self.hidden, self.heads, queries, "attention")
        if self.sinks:
            yield parts.vector(f"{name}.sinks", self.heads, "attention", queries)

    def cache(self) -> KvCache:
        """Return what one token leaves behind."""
        if self.reused:
            return KvCache("none")
        kind: Literal["gqa", "sliding"] = "sliding" if self.window else "gqa"
        values = self.value_size or self.head_size
        return KvCache(kind, self.kv_heads, self.head_size, values, self.window)


@frozen
class BlockIndexer:
    """What chooses blocks of tokens for grouped attention (MiniMax-M3).

    It has queries for each KV head, and one key, whole on every rank and cached there in 16 bits.
    """

    heads: int
    head_size: int


@frozen
class BlockSparse(Grouped):
    """Grouped attention over blocks that an indexer chooses."""

    indexer: BlockIndexer = BlockIndexer(1, 128)

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections and norms, and those of the indexer."""
        yield from Grouped.tensors(self, parts)
        name, size = f"{self.module}.index", self.indexer.head_size
        by_head = Cut("kv", self.indexer.heads)
        wide = self.indexer.heads * size
        yield from parts.linear(f"{name}_q_proj", self.hidden, wide, by_head, "attention")
        yield from parts.linear(f"{name}_k_proj", self.hidden, size, WHOLE, "attention")
        yield parts.vector(f"{name}_norms", 2 * size)

    def cache(self) -> KvCache:
        """Return keys and values, and the indexer's key."""
        return replace(Grouped.cache(self), extra_bytes_per_token=2 * self.indexer.head_size)


@frozen
class Indexer:
    """The sparse indexer of DeepSeek-V3.2: whole on every rank, with a cache of fp8 keys.

    It keeps one key for each `pool` of tokens.
    """

    heads: int
    head_size: int
    query_rank: int
    pool: int = 1

    def tensors(self, parts: Parts, hidden: int, module: str) -> Iterator[Tensor]:
        """Yield the indexer's projections; keys and weights are one matrix, never quantized."""
        name = f"{module}.indexer"
        wide = self.heads * self.head_size
        yield from parts.linear(f"{name}.wq_b", self.query_rank, wide, WHOLE, "attention")
        both = self.head_size + self.heads
        yield parts.plain_linear(f"{name}.wk_weights_proj", hidden, both, WHOLE, "attention")
        yield parts.vector(f"{name}.k_norm", 2 * self.head_size, width=4)

    def bytes_per_token(self) -> float:
        """Return a token's part of an fp8 key and one fp32 scale for each 128 elements."""
        return (self.head_size + self.head_size // 128 * 4) / self.pool


@frozen
class Latent:
    """Multi-head latent attention: one compressed entry per token, the same for all heads.

    Projections into the latent space are whole on every rank. Where `kv_b_proj` is quantized the
    engine keeps it beside its two absorbed halves in the model's precision; else they are views.
    `gate` is how many numbers a head has of one on the output, `sinks` tells of one number a head.
    """

    hidden: int
    heads: int
    query_rank: int
    kv_rank: int
    nope_size: int
    rope_size: int
    value_size: int
    indexer: Indexer | None = None
    gate: int = 0
    sinks: bool = False
    module: str = "self_attn"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield projections, norms and absorbed copies."""
        name, heads = self.module, Cut("column", self.heads)
        latent = self.kv_rank + self.rope_size
        wide = self.heads * (self.nope_size + self.rope_size)
        if self.query_rank:
            fused = self.query_rank + latent
            yield from parts.linear(f"{name}.q_a_proj", self.hidden, fused, WHOLE, "attention")
            yield parts.vector(f"{name}.q_a_layernorm", self.query_rank)
            yield from parts.linear(f"{name}.q_b_proj", self.query_rank, wide, heads, "attention")
        else:
            yield from parts.linear(
                f"{name}.kv_a_proj_with_mqa", self.hidden, latent, WHOLE, "attention"
            )
            yield from parts.linear(f"{name}.q_proj", self.hidden, wide, heads, "attention")
        yield parts.vector(f"{name}.kv_a_layernorm", self.kv_rank)
        both = self.heads * (self.nope_size + self.value_size)
        yield from parts.linear(f"{name}.kv_b_proj", self.kv_rank, both, heads, "attention")
        if self._absorbs(parts):
            elements = self.kv_rank * both
            yield parts.vector(f"{name}.kv_b_absorbed", elements, "attention", heads)
        values = self.heads * self.value_size
        row = Cut("row", self.heads)
        yield from parts.linear(f"{name}.o_proj", values, self.hidden, row, "attention")
        if self.gate:
            gates = self.heads * self.gate
            yield from parts.linear(f"{name}.g_proj", self.hidden, gates, heads, "attention")
        if self.sinks:
            yield parts.vector(f"{name}.sinks", self.heads, "attention", heads, 4)
        if self.indexer is not None:
            yield from self.indexer.tensors(parts, self.hidden, name)

    def _absorbs(self, parts: Parts) -> bool:
        module = f"{parts.prefix}{self.module}.kv_b_proj"
        return parts.quantization.scheme(module) != parts.plain

    def absorbed_before_0_8(self, parts: Parts) -> tuple[Tensor, ...]:
        """Return what engines before 0.8 held: queries and outputs multiplied into latent space.

        Read from vLLM 0.7.3's `MLACommonImpl`: FP8 is quantized again, all else in 16 bits, and so
        is the part of the queries that is rotated.
        """
        scheme = parts.quantization.scheme(f"{parts.prefix}{self.module}.q_b_proj")
        plain, heads = parts.plain.bits / 8, Cut("column", self.heads)
        size = 1 if scheme.name.startswith("fp8") else plain
        queries = (self.query_rank or self.hidden) * self.heads * self.kv_rank
        outputs = self.heads * self.kv_rank * self.hidden
        rope = (self.query_rank or self.hidden) * self.heads * self.rope_size
        return tuple(
            Tensor(name, elements, elements * width, heads.shard, "attention", heads.units)
            for name, elements, width in (
                ("w_q_uk", queries, size),
                ("w_uv_o", outputs, size),
                ("w_qr", rope, plain),
            )
        )

    def cache(self) -> KvCache:
        """Return one latent entry with its rotated part, and the indexer's key."""
        extra, pool = 0.0, 1
        if self.indexer:
            extra, pool = self.indexer.bytes_per_token(), self.indexer.pool
        size = self.kv_rank + self.rope_size
        return KvCache("mla", 1, size, 0, extra_bytes_per_token=extra, pool=pool)
