"""Real conversions: models come out whole, and the same wherever they are made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import models
from vllm_ansible.node.weights.models import Model


def silent(*_: Any, **__: Any) -> None:
    """Take a report and forget it."""


def test_a_random_model_is_the_same_wherever_it_is_made(
    models_dir: Callable[[str], Path], weights_request: dict[str, Any], tmp_path: Path
) -> None:
    first = models_dir("deepseek-v3")
    known = json.loads(first.with_suffix(".json").read_text())
    request = {**weights_request, "models_dir": str(tmp_path)}
    again = weights.fetch(Model("random", "deepseek-v3"), request, silent)
    assert again["fingerprint"] == known["fingerprint"]


def test_the_tiny_deepseek_has_the_shape_of_the_real_one(
    models_dir: Callable[[str], Path],
) -> None:
    place = models_dir("deepseek-v3")
    config = json.loads((place / "config.json").read_text())
    assert config["model_type"] == "deepseek_v3"
    assert (config["topk_method"], config["scoring_func"]) == ("noaux_tc", "sigmoid")
    assert config["kv_lora_rank"] == 512
    assert config["n_routed_experts"] > 1
    assert "<|im_start|>assistant" in (place / "chat_template.jinja").read_text()


def test_the_packaged_model_becomes_safetensors(packaged_dir: Path) -> None:
    record = models.look(Model("package", "smollm2-135m-instruct"), str(packaged_dir))
    assert record and 250 << 20 < record["bytes"] < 300 << 20
    left = sorted(path.name for path in packaged_dir.iterdir())
    assert left == ["package--smollm2-135m-instruct", "package--smollm2-135m-instruct.json"]
