"""Gemma 4: windows and full attention of different shapes, dense block and experts side by side."""

from __future__ import annotations

from collections.abc import Iterator
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
from vllm_ansible.plan.estimate.architectures.families.llama import ATTENTION
from vllm_ansible.plan.estimate.architectures.families.parts import Cut, Parts
from vllm_ansible.plan.estimate.architectures.families.vision import MOST_LAYERS
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor

CHANNELS = (128, 32)


def gemma4(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Gemma 4; the last `num_kv_shared_layers` reuse the cache of earlier ones."""
    config = outline.config
    layers, hidden = layer_count(config), config.count("hidden_size")
    kinds = config.of_layers("layer_types", layers, *ATTENTION, needed=True)
    own = layers - config.size("num_kv_shared_layers")
    blocks = [_block(config, kinds[index], index >= own) for index in range(layers)]
    size = config.count("head_dim")
    sizes = (size, config.count("global_head_dim", default=size))
    outline = replace(
        outline, everywhere=("embedding", "norm"), tied_by_default=True, rotary_sizes=sizes
    )
    embedding = []
    beside = config.size("hidden_size_per_layer_input")
    if beside:
        parts = Parts(outline.quantization, "model.")
        rows = config.count("vocab_size_per_layer_input", "vocab_size")
        cut = Cut("vocab", rows)
        wide = beside * layers
        embedding.append(parts.vector("embed_tokens_per_layer", rows * wide, "embedding", cut))
        column = Cut("column", wide)
        embedding += parts.linear("per_layer_model_projection", hidden, wide, column, "embedding")
    return decoder(outline, blocks, others=others, embedding=embedding)


def hearing(audio: Settings, text_hidden: int, parts: Parts) -> Iterator[Tensor]:
    """Yield the audio tower, whole on each rank: a conformer after two convolutions.

    Read from transformers' `modeling_gemma4.py`, which vLLM 0.32 runs as it is.
    """
    hidden = audio.count("hidden_size", default=1024)
    heads = audio.count("num_attention_heads", default=8)
    kernel = audio.count("conv_kernel_size", default=5)
    channels = audio.numbers("subsampling_conv_channels") or CHANNELS
    if len(channels) != 2:
        told = f"subsampling_conv_channels has {len(channels)} numbers"
        raise audio.problem(told, "2", f"{len(channels)}")
    first, second = channels
    output = audio.count("output_proj_dims", default=1536)

    def held(name: str, elements: int) -> Tensor:
        return parts.vector(f"audio.{name}", elements, "vision")

    yield held("convolution.0", 9 * first + first)
    yield held("convolution.1", 9 * first * second + second)
    yield held("input_proj", first // 4 * second * hidden)
    for number in range(audio.count("num_hidden_layers", default=12, limit=MOST_LAYERS)):
        # Query, key, value, what follows and positions; two feed-forwards; the gated convolution.
        yield held(f"layers.{number}", (5 + 2 * 8 + 3) * hidden**2 + kernel * hidden)
        yield held(f"layers.{number}.norms", (3 + 2 * 2 + 2) * hidden + hidden // heads)
    yield held("output_proj", hidden * output + output)
    yield held("joint", output * text_hidden)


def _block(config: Settings, kind: str, reused: bool) -> Block:
    hidden, inner = config.count("hidden_size"), config.count("intermediate_size")
    heads, size = config.count("num_attention_heads"), config.count("head_dim")
    kv_heads = config.count("num_key_value_heads", default=heads)
    full = kind != "sliding_attention"
    attention = Grouped(
        hidden=hidden,
        heads=heads,
        kv_heads=config.size("num_global_key_value_heads", kv_heads) if full else kv_heads,
        head_size=config.size("global_head_dim", size) if full else size,
        qkv_bias=config.flag("attention_bias"),
        output_bias=config.flag("attention_bias"),
        qk_norm="head",
        window=None if full else config.count("sliding_window"),
        reused=reused,
    )
    wide = inner * (2 if reused and config.flag("use_double_wide_mlp") else 1)
    feed: tuple[Dense | Experts, ...] = (Dense(hidden, wide),)
    norms, extras = 4, {}
    if "num_experts" in config:
        count = config.count("num_experts")
        feed += (
            Experts(
                hidden,
                config.count("moe_intermediate_size", "expert_intermediate_size"),
                count,
                config.count("top_k_experts"),
                module="moe",
            ),
        )
        norms, extras = 7, {"router.scale": hidden, "router.per_expert_scale": count}
    beside = config.size("hidden_size_per_layer_input")
    if beside:
        norms += 1
        extras = {**extras, "per_layer_input_gate": hidden * beside}
        extras["per_layer_projection"] = hidden * beside
    return Block(attention, feed, norms, extras)
