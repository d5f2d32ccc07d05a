"""What the files beside a configuration add to it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.problem import PlanError


def write_shard(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """Write the header of a safetensors file; nobody reads what follows."""
    header = {name: {"dtype": kind, "shape": shape} for name, (kind, shape) in tensors.items()}
    text = json.dumps({"__metadata__": {}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def write_config(path: Path, values: object) -> None:
    (path / "config.json").write_text(json.dumps(values))


def test_an_unknown_architecture_is_answered_from_its_sizes(tmp_path: Path, make: Any) -> None:
    config = make.config(architectures=["NeverSeenForCausalLM"], model_type="never_seen")
    write_config(tmp_path, config.values)
    tensors = {
        f"model.layers.{layer}.mlp.down_proj.weight": ("BF16", [64, 128]) for layer in range(4)
    }
    tensors["model.layers.0.input_layernorm.weight"] = ("F32", [64])
    tensors["model.embed_tokens.weight"] = ("BF16", [100, 64])
    write_shard(tmp_path / "model.safetensors", tensors)
    model = load(str(tmp_path))
    assert model.bytes() == 4 * 64 * 128 * 2 + 64 * 4 + 100 * 64 * 2
    assert model.tied
    assert "is not known" in model.assumed[0]
    assert len(model.assumed) == 2


def test_a_sum_that_differs_from_the_files_is_told(tmp_path: Path, make: Any) -> None:
    write_config(tmp_path, make.config().values)
    index = {"metadata": {"total_size": 10**6}, "weight_map": {"model.norm.weight": "a"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (told,) = load(str(tmp_path)).assumed
    assert "GiB" in told


def test_modules_without_scales_in_the_index_are_not_quantized(tmp_path: Path, make: Any) -> None:
    write_config(tmp_path, make.config(quantization_config={"quant_method": "fp8"}).values)
    names = ("mlp.down_proj.weight", "mlp.down_proj.weight_scale", "mlp.gate_proj.weight")
    index = {"weight_map": {f"model.layers.0.{name}": "a.safetensors" for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    widths = {one.name: one.bytes / one.elements for one in load(str(tmp_path)).layers[0].tensors}
    assert widths["mlp.down_proj.weight"] == 1
    assert widths["mlp.gate_proj.weight"] == 2


@pytest.mark.parametrize("total", ["NaN", "Infinity", "-5", "1e300", '"160000"', "true", "[1]"])
def test_a_sum_that_is_no_size_is_refused(total: str, tmp_path: Path, make: Any) -> None:
    write_config(tmp_path, make.config().values)
    names = '{"model.norm.weight": "a"}'
    index = f'{{"metadata": {{"total_size": {total}}}, "weight_map": {names}}}'
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(PlanError, match=r"total_size of its 1 tensors is .*take the index") as told:
        load(str(tmp_path))
    assert len(told.value.problems) == 1


@pytest.mark.parametrize("size", [-1, 1.5, "4", float("nan"), float("inf"), None])
def test_a_shape_that_is_none_is_named(size: Any, tmp_path: Path, make: Any) -> None:
    write_config(tmp_path, make.config().values)
    write_shard(tmp_path / "model.safetensors", {"model.norm.weight": ("BF16", [size])})
    with pytest.raises(PlanError, match=r"its model\.norm\.weight has the shape"):
        load(str(tmp_path))


def test_shards_that_are_no_names_leave_the_index_to_speak(tmp_path: Path, make: Any) -> None:
    write_config(tmp_path, make.config().values)
    index = {"weight_map": {"model.norm.weight": ["a"]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load(str(tmp_path)).bytes() > 0


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 16, struct.pack("<Q", 4) + b"{}{}"])
def test_a_broken_shard_is_named(content: bytes, tmp_path: Path, make: Any) -> None:
    write_config(tmp_path, make.config().values)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(PlanError, match=r"model\.safetensors") as refused:
        load(str(tmp_path))
    assert len(refused.value.problems) == 1


def test_a_shard_that_is_not_there_yet_leaves_the_index_to_speak(tmp_path: Path, make: Any) -> None:
    write_config(tmp_path, make.config().values)
    write_shard(tmp_path / "a.safetensors", {"model.norm.weight": ("BF16", [64])})
    index = {"weight_map": {"model.norm.weight": "a.safetensors", "other": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load(str(tmp_path)).assumed == ()


def test_the_small_files_of_a_repository_are_fetched_once(tmp_path: Path, make: Any) -> None:
    asked: list[str] = []

    def fetch(repository: str, name: str, directory: Path) -> bool:
        asked.append(name)
        if name == "config.json":
            write_config(directory, make.config().values)
        return name == "config.json"

    first = load("org/small", tmp_path, fetch)
    assert load("org/small", tmp_path, fetch) == first
    assert first.name == "org/small"
    assert asked == ["hf_quant_config.json", "model.safetensors.index.json", "config.json"]


def test_a_repository_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"org/none has no config\.json"):
        load("org/none", tmp_path, lambda *_: False)


@pytest.mark.parametrize("name", ["/no/such/place", "./none", "none", "a/b/c"])
def test_a_path_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(PlanError) as refused:
        load(name)
    assert name in str(refused.value)


def test_a_hub_that_cannot_be_reached_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PlanError) as refused:
        load("org/unreachable", tmp_path)
    assert len(refused.value.problems) == 1
    assert "org/unreachable" in str(refused.value)
