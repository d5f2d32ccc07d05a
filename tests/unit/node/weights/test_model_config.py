from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.weights.model_config import facts


@pytest.mark.parametrize(
    ("config", "experts"),
    [
        ({"n_routed_experts": 256}, 256),
        ({"num_local_experts": 8}, 8),
        ({"num_experts": [64, 64]}, 64),
        ({"num_experts": 0, "moe_num_experts": 16}, 16),
        ({"text_config": {"num_experts": 128, "hidden_size": 7168}}, 128),
        (
            {
                "block_configs": [
                    {"block_type": "mlp"},
                    {"block_type": "moe", "n_routed_experts": 4},
                ]
            },
            4,
        ),
        ({}, 0),
        ({"num_experts": None}, 0),
        ({"num_experts": True}, 0),
        ({"num_experts": "many", "block_configs": "none"}, 0),
    ],
)
def test_experts_are_counted_as_vllm_counts_them(
    config: dict[str, Any], experts: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 7168, **config}))
    found = facts(str(tmp_path))
    assert (found["experts"], found["hidden_size"]) == (experts, 7168)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_what_cannot_be_read_is_nothing(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    nothing = {"experts": 0, "hidden_size": 0, "quantized": False, "long_rope": False}
    assert facts(str(tmp_path)) == nothing


@pytest.mark.parametrize(
    ("config", "quantized", "long_rope"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, True, False),
        ({"text_config": {"compression_config": {"format": "int-quantized"}}}, True, False),
        ({"rope_scaling": {"type": "longrope", "short_factor": []}}, False, True),
        ({"rope_parameters": {"rope_type": "longrope"}}, False, True),
        ({"rope_scaling": {"rope_type": "yarn"}, "quantization_config": None}, False, False),
    ],
)
def test_what_decides_how_engines_are_compared_is_read(
    config: dict[str, Any], quantized: bool, long_rope: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = facts(str(tmp_path))
    assert (found["quantized"], found["long_rope"]) == (quantized, long_rope)
