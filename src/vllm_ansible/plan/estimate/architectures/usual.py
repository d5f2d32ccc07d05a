"""The usual keys of a configuration, where an unknown architecture has its own for them."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_ansible.plan.estimate.architectures.config import Settings

# As the configurations of vLLM's registered architectures have them in transformers 5.19.
NAMES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"),
    "hidden_size": ("n_embd", "d_model"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "decoder_attention_heads"),
    "num_key_value_heads": ("n_head_kv", "num_kv_heads"),
    "intermediate_size": ("n_inner", "ffn_hidden_size", "ffn_dim", "decoder_ffn_dim"),
    "max_position_embeddings": (
        "n_positions", "n_ctx", "seq_length", "max_seq_len", "max_target_positions",
    ),
    "vocab_size": ("padded_vocab_size",),
    "num_experts": ("moe_num_experts",),
    "num_experts_per_tok": ("moe_k", "moe_topk", "moe_top_k"),
}  # fmt: skip


def usual(config: Settings) -> Settings:
    """Return the configuration with its values under the usual keys besides."""
    values = dict(config.values)
    if not values.get("head_dim"):  # zero is what some write for a size that follows
        values.pop("head_dim", None)
    for key, others in NAMES.items():
        if values.get(key) is None:
            found = [values[name] for name in others if values.get(name) is not None]
            if found:
                values[key] = found[0]
    if values.get("multi_query") is True:
        values.setdefault("num_key_value_heads", 1)
    if values.get("multi_query_attention") is True and values.get("multi_query_group_num"):
        values.setdefault("num_key_value_heads", values["multi_query_group_num"])  # ChatGLM
    if "state_size" in values:  # Mamba has no heads
        values.setdefault("num_attention_heads", 1)
    return Settings(values, config.where)
