"""Decoders with experts: Hy3, Laguna, Trinity (AFMoE), ERNIE-4.5, K-EXAONE.

Read from vLLM 0.32's `hy_v3.py`, `laguna.py`, `afmoe.py`, `ernie45_moe.py` and `exaone_moe.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.llama import (
    Traits,
    grouped,
    head_size,
    rotated,
    windows,
)
from vllm_ansible.plan.estimate.architectures.families.mixture import plain_dense
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor


def hy3(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Hy3: dense first, then experts whose router and correction are in fp32."""
    config = outline.config
    inner = config.count("expert_hidden_dim", "moe_intermediate_size")
    experts = _experts(config, inner, inner * config.size("num_shared_experts"), 4)
    first = config.size("first_k_dense_replace", _dense_first(config, 1))
    normed = config.flag("qk_norm", True)
    traits = Traits(
        qkv_bias=False,
        output_bias=False,
        qk_norm="head" if normed else "none",
        sliding="none",
    )
    return _built(outline, traits, lambda index: index >= first, experts, others)


def laguna(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Laguna: a gate for each head or each of its elements, heads that differ by layer."""
    config = outline.config
    layers = layer_count(config)
    shared = config.size("shared_expert_intermediate_size")
    experts = _experts(config, config.count("moe_intermediate_size"), shared, 0)
    kinds = config.of_layers("mlp_layer_types", layers, "dense", "sparse")
    dense = set(config.numbers("mlp_only_layers"))
    routed = [kind == "sparse" for kind in kinds] or [index not in dense for index in range(layers)]
    heads = config.numbers("num_attention_heads_per_layer")
    if heads and len(heads) < layers:
        raise config.problem(f"num_attention_heads_per_layer names {len(heads)} layers of {layers}")
    gating = config.values.get("gating", True)
    by_head = gating is True or gating == "per-head"
    sinks = config.flag("swa_attention_sink_enabled")
    plain = plain_dense(config)
    blocks = []
    for index, window in enumerate(windows(config, Traits(qk_norm="head"))):
        attention = grouped(config, Traits(qk_norm="head"), window)
        attention = replace(
            attention,
            heads=heads[index] if heads else attention.heads,
            head_gate=bool(gating) and by_head,
            gate=bool(gating) and not by_head,
            sinks=sinks and window is not None,
        )
        blocks.append(Block(attention, (experts if routed[index] else plain,)))
    outline = replace(outline, rotary_sizes=(rotated(config, head_size(config)),))
    return decoder(outline, blocks, others=others)


def afmoe(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Trinity: four norms, a gate as wide as the heads, windows in most layers."""
    config = outline.config
    inner = config.count("moe_intermediate_size")
    experts = _experts(config, inner, inner * config.size("num_shared_experts"), 4)
    first = config.size("num_dense_layers")
    every = config.count("global_attn_every_n_layers", default=4)
    if not config.items("layer_types"):
        config = config.over(Settings({"sliding_window_pattern": every}, config.where))
    traits = Traits(qkv_bias=False, output_bias=False, qk_norm="head", norms=4)
    return _built(
        replace(outline, config=config),
        traits,
        lambda index: index >= first,
        experts,
        others,
        gate=True,
    )


def ernie_moe(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return ERNIE-4.5 with experts, in every so many layers between two."""
    config = outline.config
    inner = config.count("moe_intermediate_size")
    experts = Experts(
        config.count("hidden_size"),
        inner,
        config.count("moe_num_experts"),
        config.count("moe_k"),
        shared=_shared(config, inner * config.size("moe_num_shared_experts")),
        router_width=4,
        score_bias=True,
    )
    first = config.size("moe_layer_start_index")
    last = layer_count(config) - 1
    if config.values.get("moe_layer_end_index") != -1:
        last = config.size("moe_layer_end_index", last)
    every = config.count("moe_layer_interval", default=1)
    bias = config.flag("use_bias")
    return _built(
        outline,
        Traits(qkv_bias=bias, output_bias=False, sliding="none"),
        lambda index: first <= index <= last and (index + 1) % every == 0,
        experts,
        others,
    )


def exaone_moe(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return K-EXAONE: windows in most layers, dense first, then experts with a shared part."""
    config = outline.config
    inner = config.count("moe_intermediate_size")
    experts = _experts(config, inner, inner * config.size("num_shared_experts"), 0)
    first = config.size("first_k_dense_replace", _dense_first(config, 0))
    traits = Traits(qkv_bias=False, output_bias=False, qk_norm="head")
    return _built(outline, traits, lambda index: index >= first, experts, others)


def _experts(config: Settings, inner: int, shared: int, router_width: int) -> Experts:
    return Experts(
        config.count("hidden_size"),
        inner,
        config.count("num_experts"),
        config.count("num_experts_per_tok"),
        shared=_shared(config, shared),
        router_width=router_width,
        score_bias=True,
    )


def _shared(config: Settings, wide: int) -> Dense | None:
    hidden = config.count("hidden_size")
    block = Dense(hidden, wide, module="mlp.shared_experts", role="shared_expert") if wide else None
    return block


def _dense_first(config: Settings, usual: int) -> int:
    kinds: Sequence[object] = config.items("mlp_layer_types")
    return next((index for index, kind in enumerate(kinds) if kind == "sparse"), usual)


def _built(
    outline: Outline,
    traits: Traits,
    routed: Callable[[int], bool],
    experts: Experts,
    others: tuple[Tensor, ...],
    *,
    gate: bool = False,
) -> Model:
    config = outline.config
    plain = plain_dense(config)
    blocks = [
        Block(
            replace(grouped(config, traits, window), gate=gate),
            (experts if routed(index) else plain,),
            traits.norms,
        )
        for index, window in enumerate(windows(config, traits))
    ]
    outline = replace(outline, rotary_sizes=(rotated(config, head_size(config)),))
    return decoder(outline, blocks, others=others)
