"""MiMo-V2: few layers see all tokens, most a window; values are smaller than keys.

Read from vLLM 0.32's `mimo_v2.py`.
"""

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
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Experts
from vllm_ansible.plan.estimate.architectures.families.llama import rotated
from vllm_ansible.plan.estimate.architectures.families.mixture import plain_dense
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor


def mimo_v2(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; `hybrid_layer_pattern` has 1 for each layer that sees a window."""
    config = outline.config
    hidden, layers = config.count("hidden_size"), layer_count(config)
    sees, routed = (
        config.of_layers(name, layers, 0, 1, needed=True)
        for name in ("hybrid_layer_pattern", "moe_layer_freq")
    )
    whole, near = _attention(config, ""), _attention(config, "swa_")
    experts = Experts(
        hidden,
        config.count("moe_intermediate_size"),
        config.count("n_routed_experts"),
        config.count("num_experts_per_tok"),
        router_width=4 if config.text("moe_router_dtype", "float32") == "float32" else 0,
        score_bias=True,
    )
    dense = plain_dense(config)
    blocks = [
        Block(near if sees[index] else whole, (experts if routed[index] else dense,))
        for index in range(layers)
    ]
    sizes = (rotated(config, whole.head_size),)
    return decoder(replace(outline, rotary_sizes=sizes), blocks, others=others)


def _attention(config: Settings, prefix: str) -> Grouped:
    """Return the attention whose keys begin with `prefix`; only that of a window has sinks."""
    window = config.count("sliding_window_size", "sliding_window") if prefix else None
    return Grouped(
        hidden=config.count("hidden_size"),
        heads=config.count(f"{prefix}num_attention_heads"),
        kv_heads=config.count(f"{prefix}num_key_value_heads"),
        head_size=config.count(f"{prefix}head_dim"),
        qkv_bias=config.flag("attention_bias"),
        sinks=bool(prefix) and config.flag("add_swa_attention_sink_bias"),
        window=window,
        value_size=config.size(f"{prefix}v_head_dim"),
    )
