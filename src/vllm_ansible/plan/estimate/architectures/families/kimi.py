"""Kimi-Linear and Kimi-K3: delta attention, latent attention in every fourth layer, experts."""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.latent import latent
from vllm_ansible.plan.estimate.architectures.families.parts import Parts
from vllm_ansible.plan.estimate.architectures.families.recurrent import KeyedDelta
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor


def kimi(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; layers are counted from one where `linear_attn_config` names them."""
    config = outline.config
    linear = config.section("linear_attn_config")
    if linear is None:
        raise config.problem("linear_attn_config is missing, which says what each layer attends by")
    hidden, layers = config.count("hidden_size"), layer_count(config)
    full = set(linear.numbers("full_attn_layers"))
    gate = config.count("v_head_dim") if config.flag("mla_use_output_gate") else 0
    whole = replace(latent(config), gate=gate)
    delta = KeyedDelta(
        hidden=hidden,
        heads=linear.count("num_heads"),
        head_size=linear.count("head_dim"),
        kernel=linear.count("short_conv_kernel_size"),
        whole_gate=linear.flag("use_full_rank_gate"),
        twice=linear.flag("use_full_rank_gate"),
        bounded="gate_lower_bound" in linear,
    )
    # Residuals of blocks of layers: two norms and two vectors of scores in each layer.
    joined = "attn_res_block_size" in config
    extras = {"attention_residuals": 4 * hidden} if joined else {}
    dense = Dense(hidden, config.count("intermediate_size"))
    experts, first = _experts(outline), config.size("first_k_dense_replace")
    every = config.count("moe_layer_freq", default=1)
    blocks = [
        Block(
            whole if index + 1 in full else delta,
            (experts if index >= first and index % every == 0 else dense,),
            extras=extras,
        )
        for index in range(layers)
    ]
    parts = Parts(outline.quantization, "")
    head = [parts.vector("output_residuals", 2 * hidden)] if joined else []
    rotated = () if config.flag("mla_use_nope") else (config.count("qk_rope_head_dim"),)
    outline = replace(outline, rotary_sizes=rotated)
    return decoder(outline, blocks, others=others, head=head)


def _experts(outline: Outline) -> Experts:
    config = outline.config
    hidden, inner = config.count("hidden_size"), config.count("moe_intermediate_size")
    several = config.size("num_shared_experts")
    name = "block_sparse_moe"
    shared = Dense(hidden, inner * several, module=f"{name}.shared_experts", role="shared_expert")
    narrow = config.size("routed_expert_hidden_size")
    return Experts(
        hidden,
        inner,
        config.count("num_experts"),
        config.count("num_experts_per_token"),
        shared=shared if several else None,
        score_bias=True,
        latent=narrow,
        latent_norm=bool(narrow) and config.flag("latent_moe_use_norm"),
        # Kimi-K3's checkpoint has 4 bits in its routed experts alone, whatever else is not ignored.
        latent_plain=True,
        padding="least 256" if narrow else "",
        module=name,
    )
