"""Step-3.5: grouped attention with a gate for each head, more heads where it sees a window."""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.mixture import plain_dense
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor


def step(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; `attention_other_setting` says how layers of another kind differ."""
    config = outline.config
    hidden, layers = config.count("hidden_size"), layer_count(config)
    kinds = [str(one) for one in config.items("layer_types")][:layers]
    other = config.section("attention_other_setting") or Settings({}, config.where)
    if len(kinds) < layers:
        raise config.problem(f"layer_types names {len(kinds)} layers of {layers}")
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
