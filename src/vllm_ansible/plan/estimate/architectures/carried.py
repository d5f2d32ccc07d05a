"""The shapes of the models that Python packages carry, as their conversion writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# So that a plan can be made before the package is fetched.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "smollm2-135m-instruct": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "head_dim": 64,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "max_position_embeddings": 8192,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
        "vocab_size": 49152,
    },
}
