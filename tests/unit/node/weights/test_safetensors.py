"""Weights that are cut, damaged or incomplete are named before an engine stumbles over them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.weights import safetensors
from vllm_ansible.node.weights.safetensors import INDEX, WeightsError, check, file_digest


def write_shard(path: Path, names: list[str], size: int = 64) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for number, name in enumerate(names):
        offsets = [number * size, (number + 1) * size]
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": offsets}
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(size * len(names)))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Give a whole model of two shards."""
    (tmp_path / "config.json").write_text("{}")
    weight_map = {}
    for number in (1, 2):
        shard = f"model-0000{number}-of-00002.safetensors"
        names = [f"layer.{number}.weight", f"layer.{number}.bias"]
        write_shard(tmp_path / shard, names)
        weight_map.update(dict.fromkeys(names, shard))
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return tmp_path


def refused(model: Path) -> dict[str, str]:
    with pytest.raises(WeightsError) as error:
        check(str(model))
    # Every refusal says all four.
    assert {"expected", "found", "where", "fix"} <= set(error.value.details)
    return {"msg": str(error.value), **error.value.details}


def test_a_whole_model_passes(model: Path) -> None:
    assert len(check(str(model))) == 2


def test_a_missing_shard_is_named(model: Path) -> None:
    (model / "model-00002-of-00002.safetensors").unlink()
    problem = refused(model)
    assert problem["msg"] == "1 of 2 shards are missing: model-00002-of-00002.safetensors"
    assert str(model / "model-00002-of-00002.safetensors") in problem["expected"]
    assert problem["found"].startswith("1 of 2")


def test_a_shard_that_was_cut_short_is_named_with_both_sizes(model: Path) -> None:
    shard = model / "model-00001-of-00002.safetensors"
    whole = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-10])
    problem = refused(model)
    assert problem["where"] == str(shard)
    assert problem["expected"].startswith(f"{whole} bytes")
    assert problem["found"] == f"{whole - 10} bytes: cut short"


def test_a_shard_with_bytes_to_spare_is_refused(model: Path) -> None:
    with (model / "model-00001-of-00002.safetensors").open("ab") as shard:
        shard.write(b"x")
    assert "longer than it declares" in refused(model)["found"]


@pytest.mark.parametrize(
    "content",
    [b"", b"123", b"\xff" * 64, struct.pack("<Q", 4) + b"nope", struct.pack("<Q", 2) + b"[]"],
)
def test_garbage_is_refused(model: Path, content: bytes) -> None:
    shard = model / "model-00001-of-00002.safetensors"
    shard.write_bytes(content)
    assert refused(model)["where"] == str(shard)


def test_a_tensor_the_index_promises_must_be_there(model: Path) -> None:
    write_shard(model / "model-00002-of-00002.safetensors", ["layer.2.weight"])
    assert "layer.2.bias" in refused(model)["expected"]


def test_an_index_that_is_no_json_is_named(model: Path) -> None:
    (model / INDEX).write_text("{")
    assert refused(model)["where"] == str(model / INDEX)


def test_a_directory_without_config_is_no_model(tmp_path: Path) -> None:
    assert "config.json" in refused(tmp_path)["msg"]
    assert refused(tmp_path / "nowhere")["found"] == "no such directory"


def test_a_config_alone_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "no weights" in refused(tmp_path)["msg"]


def test_a_large_file_is_known_by_blocks_of_each_tensor_and_a_small_one_by_every_byte(
    model: Path,
) -> None:
    shard = model / "model-00001-of-00002.safetensors"
    whole, sampled = file_digest(str(shard), 1 << 20), file_digest(str(shard), 10)
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    assert file_digest(str(shard), 1 << 20) != whole
    # Small tensors are blocks as they are.
    assert file_digest(str(shard), 10) != sampled


def test_two_fine_tunes_of_one_shape_are_told_apart_by_any_tensor(tmp_path: Path) -> None:
    shard, size = tmp_path / "model.safetensors", 5 << 20
    write_shard(shard, ["a", "b", "c"], size)
    base = file_digest(str(shard), 10)
    content = shard.read_bytes()
    start = len(content) - 3 * size
    for number in range(3):
        other = bytearray(content)
        # As training leaves it: every weight of one tensor is another.
        other[start + number * size : start + (number + 1) * size] = b"\1" * size
        shard.write_bytes(other)
        assert file_digest(str(shard), 10) != base
    shard.write_bytes(content)
    assert file_digest(str(shard), 10) == base


def test_a_large_tensor_has_a_block_in_each_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safetensors, "SAMPLE_EACH", 1 << 20)
    shard = tmp_path / "model.safetensors"
    write_shard(shard, ["a"], 4 << 20)
    read: list[tuple[int, int]] = []
    monkeypatch.setattr(
        safetensors, "_blocks", lambda path, places: read.extend(places) or iter(())
    )
    file_digest(str(shard), 10)
    start = shard.stat().st_size - (4 << 20)
    assert [(place - start) >> 20 for place, _ in read] == [0, 1, 2, 3]
    assert {length for _, length in read} == {safetensors.SAMPLE}
    assert max(place + length for place, length in read) <= shard.stat().st_size
