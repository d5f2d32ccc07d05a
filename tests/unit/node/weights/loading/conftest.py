"""Models that hold nothing but bytes, in files as safetensors has them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.system.storage import mount_of, mounts

Write = Callable[[Path, Mapping[str, int]], None]


def _write(path: Path, tensors: Mapping[str, int]) -> None:
    """Write a file of tensors by name and size, and see it on the disk."""
    header: dict[str, Any] = {}
    end = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    with path.open("wb") as shard:
        shard.write(len(raw).to_bytes(8, "little") + raw + os.urandom(end))
        shard.flush()
        os.fsync(shard.fileno())


@pytest.fixture
def write_tensors() -> Write:
    return _write


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """Give a directory whose files memory can forget."""
    kind = mount_of(str(tmp_path), mounts())["kind"]
    if kind not in ("ext4", "xfs", "btrfs", "ext3"):
        pytest.skip(f"{tmp_path} is on {kind}, whose files memory may not forget")
    return tmp_path
