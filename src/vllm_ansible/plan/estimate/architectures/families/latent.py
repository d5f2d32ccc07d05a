"""Decoders of latent attention: DeepSeek V2, V3, R1, V3.2, Kimi K2, GLM-5, Sarvam."""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped, Indexer, Latent
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    INDEX_TOKENS,
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.llama import Traits, grouped
from vllm_ansible.plan.estimate.architectures.families.mixture import shared_experts
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor


def deepseek_experts(config: Settings) -> Experts:
    """Return routed and shared experts; the fp32 correction comes with `noaux_tc`."""
    hidden, inner = config.count("hidden_size"), config.count("moe_intermediate_size")
    several = config.size("n_shared_experts")
    shared = Dense(hidden, inner * several, module="mlp.shared_experts", role="shared_expert")
    return Experts(
        hidden,
        inner,
        config.count("n_routed_experts"),
        config.count("num_experts_per_tok"),
        shared=shared if several else None,
        score_bias=config.text("topk_method") == "noaux_tc",
    )


def latent(config: Settings, indexer: Indexer | None = None) -> Latent:
    """Return the attention of one layer, which rotates nothing where its rotated part is 0."""
    rotated = "qk_rope_head_dim"
    return Latent(
        hidden=config.count("hidden_size"),
        heads=config.count("num_attention_heads"),
        query_rank=config.size("q_lora_rank"),
        kv_rank=config.count("kv_lora_rank"),
        nope_size=config.count("qk_nope_head_dim"),
        rope_size=config.size(rotated) if rotated in config else config.count(rotated),
        value_size=config.count("v_head_dim"),
        indexer=indexer,
    )


def indexer(config: Settings) -> Indexer:
    """Return what chooses the tokens that a layer attends to."""
    heads, size = config.count("index_n_heads"), config.count("index_head_dim")
    return Indexer(heads, size, config.count("q_lora_rank"))


def choices(config: Settings) -> Tensor:
    """Return the buffer of the tokens that were chosen for each one of a step."""
    chosen = INDEX_TOKENS * config.count("index_topk")
    return Tensor("topk_indices", chosen, chosen * 4, "replicated", "other")


def _indexed(config: Settings, index: int) -> bool:
    """Return whether a layer chooses its own tokens or shares the choice of one before it."""
    if "index_topk" not in config:
        return False
    pattern = config.values.get("index_topk_pattern")
    if isinstance(pattern, str):
        return index >= len(pattern) or pattern[index] != "S"
    every = config.count("index_topk_freq", default=1)
    offset = config.size("index_skip_topk_offset", 2)
    return max(index - offset + 1, 0) % every == 0


def sarvam(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Sarvam-105B: latent attention, dense first, experts with a correction in fp32."""
    config = outline.config
    first = config.size("first_k_dense_replace")
    dense = Dense(config.count("hidden_size"), config.count("intermediate_size"))
    # Its class keeps the router in the model's precision, and corrects scores unless told not to.
    corrected = config.flag("moe_router_enable_expert_bias", True)
    experts = replace(shared_experts(config), router_width=0, score_bias=corrected)
    blocks = [
        Block(latent(config), (experts if index >= first else dense,))
        for index in range(layer_count(config))
    ]
    outline = replace(outline, rotary_sizes=(config.count("qk_rope_head_dim"),))
    return decoder(outline, blocks, others=others)


def deepseek(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return a DeepSeek decoder; layers before `first_k_dense_replace` are dense."""
    config = outline.config
    layers, first = layer_count(config), config.size("first_k_dense_replace")
    every = config.count("moe_layer_freq", default=1)
    dense = Dense(config.count("hidden_size"), config.count("intermediate_size"))
    experts = deepseek_experts(config)
    plain = "kv_lora_rank" not in config  # the first DeepSeek MoE has no latent attention
    traits = Traits(output_bias=False, sliding="none")

    def attention(index: int) -> Grouped | Latent:
        if plain:
            return grouped(config, traits)
        return latent(config, indexer(config) if _indexed(config, index) else None)

    blocks = [
        Block(attention(index), (experts if index >= first and index % every == 0 else dense,))
        for index in range(layers)
    ]
    buffers = []
    sizes: tuple[int, ...] = (config.size("qk_rope_head_dim", config.size("head_dim", 128)),)
    if "index_topk" in config:
        buffers.append(choices(config))
        sizes = sizes * 2
    outline = replace(outline, rotary_sizes=sizes)
    return decoder(outline, blocks, others=others, buffers=buffers)
