"""Small configurations of known mechanisms."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}


class Make:
    """Makes models of one small shape, changed as a test needs it."""

    values = LLAMA

    def config(self, **changes: Any) -> Settings:
        """Return the configuration; a value of None takes a key away."""
        values = {**self.values, **changes}
        kept = {key: value for key, value in values.items() if value is not None}
        return Settings(kept, "config.json")

    def __call__(self, **changes: Any) -> Model:
        return understand(self.config(**changes), "small")


@pytest.fixture
def make() -> Make:
    """Return what makes small models."""
    return Make()
