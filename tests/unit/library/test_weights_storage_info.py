"""A real look at real files: measured once, kept, and never beside a process that uses them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.system.storage import mount_of, mounts

Module = Callable[..., dict[str, Any]]
SIZE = 20 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Give a model whose file memory has forgotten."""
    if mount_of(str(tmp_path), mounts())["kind"] not in ("ext4", "xfs", "btrfs"):
        pytest.skip(f"memory may not forget files of {tmp_path}")
    place = tmp_path / "model"
    place.mkdir()
    with (place / "pytorch_model.bin").open("wb") as weights:
        weights.write(os.urandom(SIZE))
        weights.flush()
        os.fsync(weights.fileno())
        os.posix_fadvise(weights.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return place


def looked(run_module: Module, model: Path, check: bool = False, **more: Any) -> dict[str, Any]:
    wanted = {"name": "chat", "path": str(model), "fingerprint": "f", **more}
    args = {"cluster_dir": str(model.parent / "c"), "engines": [wanted]}
    found: dict[str, Any] = run_module("weights_storage_info", args, [], check=check)
    return found["engines"]["chat"]


def test_a_rate_is_measured_once_and_again_when_the_files_are_others(
    run_module: Module, model: Path
) -> None:
    first = looked(run_module, model)
    assert first["rate"]["bytes"] == SIZE and first["rate"]["bytes_per_second"] > 0
    assert (first["why"], first["way"], first["readers"]) == ("", "mapped", 1)
    assert first["cached"] == 1, "what was read stays in memory for the load"
    # It would not be measured now: all is in memory.
    assert looked(run_module, model)["rate"] == first["rate"]
    kept = json.loads((model.parent / "c/weights-rates.json").read_text())
    assert list(kept) == [str(model)]
    other = looked(run_module, model, fingerprint="g")
    assert (other["rate"], other["why"]) == ({}, "its files are in memory already")


def test_check_mode_tells_what_was_measured_before(run_module: Module, model: Path) -> None:
    assert looked(run_module, model, check=True)["why"] == "it was not measured before"
    assert looked(run_module, model, check=True)["cached"] == 0
    measured = looked(run_module, model)["rate"]
    assert looked(run_module, model, check=True)["rate"] == measured


def test_nothing_is_read_beside_a_process_that_uses_the_files(
    run_module: Module, model: Path, serving: Callable[[Path], int]
) -> None:
    pid = serving(model / "pytorch_model.bin")
    found = looked(run_module, model)
    assert (found["rate"], found["why"]) == ({}, f"process {pid} uses its files")
    assert not (model.parent / "c").exists()


def test_a_loader_whose_reads_are_not_known_is_not_foretold(
    run_module: Module, model: Path
) -> None:
    words = ["--load-format", "runai_streamer"]
    found = looked(run_module, model, arguments=words)
    assert (found["way"], found["rate"]) == ("unknown", {})
    assert looked(run_module, model, arguments=["--load-format=dummy"])["why"] == "no file is read"


@pytest.fixture
def serving() -> Any:
    """Map a file in another process for as long as the test runs."""
    import subprocess
    import sys

    program = "import mmap, sys; f = open(sys.argv[1], 'rb'); "
    program += "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); print(flush=True); input()"
    started = []

    def start(path: Path) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()
