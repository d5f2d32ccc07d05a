"""What layers of an unknown architecture keep, by the usual keys of configurations."""

from __future__ import annotations

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.llama import head_size
from vllm_ansible.plan.estimate.architectures.model import KvCache

# Bytes of a number of a kept state, which engines hold in single precision.
STATE_WIDTH = 4
WORDS = {
    "full": ("full", "attention", "hybrid", "global"),
    "sliding": ("sliding", "chunked", "local"),
    "state": ("mamba", "linear", "recurrent", "conv", "kda", "lightning"),
    "none": ("moe", "mlp"),
}


def caches(config: Settings, layers: int) -> tuple[KvCache, ...]:
    """Return the cache of each layer: keys and values, latent entries, a window or a state."""
    heads = config.count("num_attention_heads")
    # Mamba has no heads, and those of Mamba 2 do not attend.
    if "state_size" in config and heads in (1, config.values.get("num_heads")):
        inner = config.size("intermediate_size") or 2 * config.count("hidden_size")
        kept = inner * config.count("state_size") * STATE_WIDTH
        return (KvCache("linear", heads, state_bytes=kept),) * layers
    kv_heads, size = config.count("num_key_value_heads", default=heads), head_size(config)
    window = config.size("sliding_window") or None
    whole = KvCache("gqa", kv_heads, size, size)
    if "kv_lora_rank" in config:
        whole = KvCache("mla", 1, config.count("kv_lora_rank") + config.size("qk_rope_head_dim"))
    wide = max(size, config.size("mamba_d_state"), config.size("ssm_state_size"))
    made = {
        "full": whole,
        "sliding": KvCache("sliding", kv_heads, size, size, window) if window else whole,
        "state": KvCache("linear", heads, state_bytes=heads * size * wide * STATE_WIDTH),
        "none": KvCache("none"),
    }
    return tuple(made[kind] for kind in _kinds(config, layers))


def _kinds(config: Settings, layers: int) -> list[str]:
    """Return for each layer what it keeps; a layer of which nothing is said keeps every token."""
    named = [str(one).lower() for one in _listed(config)]
    if len(named) >= layers:
        return [_kind(word) for word in named[:layers]]
    several = [one for one in config.items("attn_type_list") if isinstance(one, int)]
    if len(several) >= layers:  # MiniMax: 1 attends, 0 keeps a state
        return ["full" if one else "state" for one in several[:layers]]
    linear = config.section("linear_attn_config")
    if linear is not None and linear.numbers("full_attn_layers"):  # Kimi counts from one
        full = set(linear.numbers("full_attn_layers"))
        return ["full" if index + 1 in full else "state" for index in range(layers)]
    if "attn_layer_period" in config:  # Jamba
        period, offset = config.count("attn_layer_period"), config.size("attn_layer_offset")
        return ["full" if index % period == offset else "state" for index in range(layers)]
    return ["full"] * layers


def _listed(config: Settings) -> list[object]:
    return [*(config.items("layers_block_type") or config.items("layer_types"))]


def _kind(word: str) -> str:
    for kind in ("sliding", "state", "none", "full"):
        if any(part in word for part in WORDS[kind]):
            return kind
    return "full"
