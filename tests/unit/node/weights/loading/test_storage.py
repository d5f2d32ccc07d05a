"""Where a model lies, and what its files hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vllm_ansible.node.weights.loading import storage
from vllm_ansible.node.weights.safetensors import INDEX


def test_the_file_system_and_the_room_beside_it_are_looked_up(tmp_path: Path) -> None:
    found = storage.look(str(tmp_path), str(tmp_path / "not/yet"))
    assert found["kind"] == found["local_kind"] != ""
    assert str(tmp_path).startswith(found["point"])
    assert found["memory_available"] > 0
    assert found["local_free"] == 0 if found["network"] else found["local_free"] > 0


def test_kinds_that_other_hosts_may_share_are_known() -> None:
    shared = ["nfs", "nfs4", "lustre", "beegfs", "gpfs", "wekafs", "fuse.juicefs", "ceph"]
    assert all(map(storage.is_network, shared))
    assert not any(map(storage.is_network, ["ext4", "xfs", "tmpfs", "overlay", "fuse.squashfuse"]))


def test_the_kernel_says_how_far_it_reads_ahead(tmp_path: Path) -> None:
    (tmp_path / "0:52").mkdir()
    (tmp_path / "0:52/read_ahead_kb").write_text("128\n")
    assert storage.read_ahead_kib(os.makedev(0, 52), str(tmp_path)) == 128
    assert storage.read_ahead_kib(os.makedev(0, 53), str(tmp_path)) is None


def test_bytes_are_counted_by_layer(tmp_path: Path, write_tensors: Any) -> None:
    write_tensors(
        tmp_path / "one.safetensors",
        {"model.embed_tokens.weight": 7, "model.layers.0.w": 10, "visual.blocks.1.w": 3},
    )
    write_tensors(tmp_path / "two.safetensors", {"model.layers.0.b": 1, "model.layers.11.w": 20})
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"num_hidden_layers": 12}}))
    files = storage.weight_files(str(tmp_path))
    found = storage.contents(str(tmp_path), files)
    assert found["layers"] == {"0": 11, "11": 20}
    assert (found["others"], found["count"]) == (10, 12)
    assert found["bytes"] == sum(os.path.getsize(path) for path in files)


def test_files_that_the_index_does_not_name_are_not_loaded(
    tmp_path: Path, write_tensors: Any
) -> None:
    for name in ("model-1.safetensors", "consolidated.safetensors"):
        write_tensors(tmp_path / name, {"w": 1})
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"w": "model-1.safetensors"}}))
    assert storage.weight_files(str(tmp_path)) == [str(tmp_path / "model-1.safetensors")]


def test_of_other_formats_the_size_alone_is_known(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"12345")
    files = storage.weight_files(str(tmp_path))
    assert storage.contents(str(tmp_path), files) == {
        "bytes": 5,
        "layers": {},
        "others": 0,
        "count": 0,
    }
