"""Ling and Ring from 2.5 on: a state in most layers, latent attention in the last of each group.

Read from vLLM 0.32: `bailing_moe_linear` (2.5 and 2.6: Lightning attention) and `bailing_moe_v3`
(3.0: Kimi's delta attention).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Latent
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Attention,
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.latent import latent
from vllm_ansible.plan.estimate.architectures.families.llama import head_size
from vllm_ansible.plan.estimate.architectures.families.mixture import shared_experts
from vllm_ansible.plan.estimate.architectures.families.recurrent import KeyedDelta, Lightning
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor


def ling_2_5(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Ling 2.5 and 2.6; the layers that are left over after the last group keep a state."""
    config = outline.config
    bias = config.flag("use_bias")
    state = Lightning(
        hidden=config.count("hidden_size"),
        heads=config.count("num_attention_heads"),
        head_size=head_size(config),
        bias=bias or config.flag("use_qkv_bias"),
        output_bias=bias,
        qk_norm=config.flag("use_qk_norm"),
        state_width=outline.quantization.plain.bits // 8,
    )
    experts = shared_experts(config)
    if "router_dtype" not in config:
        experts = replace(experts, router_width=4)
    rotated = (config.count("qk_rope_head_dim"), _part(config))
    model = _ling(replace(outline, rotary_sizes=rotated), state, latent(config), experts, others)
    # The gates of Lightning attention are normalized by groups, which stay on one rank.
    return replace(model, tensor_divides=config.count("group_norm_size", default=1))


def ling_3(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Ling 3.0; the layers that are left over after the last group attend."""
    config = outline.config
    delta = KeyedDelta(
        hidden=config.count("hidden_size"),
        heads=config.count("num_attention_heads"),
        head_size=head_size(config),
        kernel=config.count("short_conv_kernel_size", default=4),
        whole_gate=True,
        whole_decay=True,
    )
    gates = {"head_wise": 1, "element_wise": config.count("v_head_dim")}
    whole = replace(
        latent(config), gate=gates.get(config.text("gated_attention_proj_granularity_type"), 0)
    )
    experts = replace(shared_experts(config), router_width=4, score_bias=True)
    outline = replace(outline, rotary_sizes=(config.count("qk_rope_head_dim"),))
    return _ling(outline, delta, whole, experts, others, rest=True)


def _ling(
    outline: Outline,
    state: Attention,
    whole: Latent,
    experts: Experts,
    others: tuple[Tensor, ...],
    *,
    rest: bool = False,
) -> Model:
    """Return the decoder; `rest` tells of attention in what is left over after the last group."""
    config = outline.config
    group, first = config.count("layer_group_size"), config.size("first_k_dense_replace")
    layers = layer_count(config)
    grouped = layers // group * group if rest else layers
    dense = Dense(config.count("hidden_size"), config.count("intermediate_size"))

    def blocks() -> Iterator[Block]:
        for index in range(layers):
            attends = (index + 1) % group == 0 or index >= grouped
            yield Block(whole if attends else state, (experts if index >= first else dense,))

    return decoder(outline, list(blocks()), others=others)


def _part(config: Settings) -> int:
    """Return the rotated part of a head of Lightning attention."""
    return int(head_size(config) * config.fraction("partial_rotary_factor", 1.0))
