"""Step-3.5: grouped attention with a gate for each head, more heads where it sees a window.

Step3: queries of low rank for all heads over a single head of keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.llama import ATTENTION
from vllm_ansible.plan.estimate.architectures.families.mixture import plain_dense
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import KvCache, Model, Tensor

# Of Step3 attention, the shared expert and the experts are added up over tensor ranks apart.
SUMS = 3


def step(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; `attention_other_setting` says how layers of another kind differ."""
    config = outline.config
    hidden, layers = config.count("hidden_size"), layer_count(config)
    kinds = config.of_layers("layer_types", layers, *ATTENTION, needed=True)
    other = config.section("attention_other_setting") or Settings({}, config.where)
    window = config.size("sliding_window") or None
    full = _attention(config, config, None)
    apart = {
        kind: _attention(config, other if kind == other.text("attention_type") else config, window)
        for kind in set(kinds) - {"full_attention"}
    }
    routed = _routed(config, layers)
    experts = Experts(
        hidden,
        config.count("moe_intermediate_size"),
        config.count("moe_num_experts"),
        config.count("moe_top_k"),
        shared=Dense(
            hidden, config.count("share_expert_dim"), module="share_expert", role="shared_expert"
        ),
        router_width=4,
        score_bias=True,
        module="moe",
    )
    dense = plain_dense(config)
    blocks = [
        Block(apart.get(kind, full), (experts if index in routed else dense,))
        for index, kind in enumerate(kinds)
    ]
    parts = [part for part in config.items("partial_rotary_factors") if isinstance(part, float)]
    sizes = sorted({int(full.head_size * part) for part in parts[:layers] or [1.0]})
    model = decoder(replace(outline, rotary_sizes=tuple(sizes)), blocks, others=others)
    return replace(model, kv_heads=config.count("num_attention_groups"))


def _attention(config: Settings, sizes: Settings, window: int | None) -> Grouped:
    return Grouped(
        hidden=config.count("hidden_size"),
        heads=sizes.count("num_attention_heads"),
        kv_heads=sizes.count("num_attention_groups"),
        head_size=sizes.count("head_dim"),
        qkv_bias=config.flag("attention_bias"),
        qk_norm="head",
        head_gate=config.flag("use_head_wise_attn_gate"),
        window=window,
    )


def _routed(config: Settings, layers: int) -> set[int]:
    """Return the layers that have experts: all but the first, where none are named."""
    named = config.text("moe_layers_enum")
    if not named:
        return set(range(1, layers))
    try:
        return {int(one) for one in named.split(",")}
    except ValueError as error:
        raise config.problem(f"moe_layers_enum is {named!r}, not numbers") from error


@frozen
class Factored:
    """Attention of one KV head, whose queries are projected twice (vLLM 0.32's `step3_text.py`).

    The first projection is one matrix with keys and values, whole on every rank.
    """

    hidden: int
    heads: int
    head_size: int
    query_rank: int
    module: str = "self_attn"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections and the norm between them."""
        name, wide = self.module, self.heads * self.head_size
        fused = self.query_rank + 2 * self.head_size
        yield from parts.linear(f"{name}.qkv_proj", self.hidden, fused, WHOLE, "attention")
        yield parts.vector(f"{name}.inter_norm", self.query_rank)
        heads, row = Cut("column", self.heads), Cut("row", self.heads)
        yield from parts.linear(f"{name}.wq", self.query_rank, wide, heads, "attention")
        yield from parts.linear(f"{name}.o_proj", wide, self.hidden, row, "attention")

    def cache(self) -> KvCache:
        """Return a key and a value."""
        return KvCache("gqa", 1, self.head_size, self.head_size)


def step3(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Step3: the layers that `moe_layers_enum` names have experts and a shared one."""
    config = outline.config
    longest = config.count("max_position_embedding", "max_seq_len", default=8192)
    config = config.over(Settings({"max_position_embeddings": longest}, config.where))
    hidden, layers = config.count("hidden_size"), layer_count(config)
    size = config.count("head_dim", default=256)
    attention = Factored(
        hidden,
        config.count("num_attention_heads"),
        size,
        config.count("share_q_dim", default=size),
    )
    shared = config.count("share_expert_dim")
    experts = Experts(
        hidden,
        config.count("moe_intermediate_size"),
        config.count("moe_num_experts"),
        config.count("moe_top_k"),
        shared=Dense(hidden, shared, module="share_expert", role="shared_expert"),
        module="moe",
    )
    routed, dense = _routed(config, layers), plain_dense(config)
    blocks = [
        Block(attention, (experts,), sums=SUMS) if index in routed else Block(attention, (dense,))
        for index in range(layers)
    ]
    outline = replace(outline, config=config, rotary_sizes=(size,))
    return replace(decoder(outline, blocks, others=others), kv_heads=1)


def tower(config: Settings, vision: Settings, hidden: int, parts: Parts) -> Iterator[Tensor]:
    """Yield Step3's tower and the two convolutions that join four patches, then nine, to one."""
    size, inner = vision.count("hidden_size"), vision.count("intermediate_size")
    heads, layers = vision.count("num_attention_heads"), layer_count(vision)
    patch = vision.count("patch_size")
    column, row = Cut("column", heads), Cut("row", heads)

    def made(name: str, inputs: int, outputs: int, cut: Cut = WHOLE) -> Iterator[Tensor]:
        yield parts.vector(f"vision.{name}", inputs * outputs, "vision", cut)
        split = cut if cut.shard == "column" else WHOLE
        yield parts.vector(f"vision.{name}.bias", outputs, "vision", split)

    yield from made("patch", vision.count("num_channels", default=3) * patch**2, size)
    seen = (vision.count("image_size") // patch) ** 2 + 1
    yield parts.vector("vision.positions", (seen + 1) * size, "vision")
    for number in range(layers):
        name = f"blocks.{number}"
        yield from made(f"{name}.qkv", size, 3 * size, column)
        yield from made(f"{name}.proj", size, size, row)
        yield from made(f"{name}.up", size, inner, column)
        yield from made(f"{name}.down", inner, size, row)
        yield parts.vector(f"vision.{name}.norms", 4 * size, "vision")
    joined = vision.count("output_hidden_size")
    yield from made("joint.0", 4 * size, joined)
    yield from made("joint.1", 9 * joined, 2 * joined)
    last = list(made("joint.2", 2 * joined, hidden))
    yield from last if config.flag("projector_bias", True) else last[:1]
