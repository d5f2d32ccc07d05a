"""Rates of real reads of a real disk."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.weights.loading import rate
from vllm_ansible.node.weights.loading.storage import in_memory
from vllm_ansible.node.weights.loading.way import AHEAD, MAPPED

SIZE = 48 << 20


def forget(path: Path) -> None:
    with path.open("rb") as handle:
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize(("way", "readers"), [(MAPPED, 1), (AHEAD, 8)])
def test_what_is_cold_is_measured_and_no_more_is_read_than_allowed(
    on_disk: Path, write_tensors: Any, way: str, readers: int
) -> None:
    began = time.time()
    write_tensors(on_disk / "a.safetensors", {"w": SIZE})
    forget(on_disk / "a.safetensors")
    assert in_memory([str(on_disk / "a.safetensors")]) == 0
    found = rate.measure([str(on_disk / "a.safetensors")], way, readers, 32 << 20, 300)
    assert (found["bytes"], found["way"], found["readers"]) == (32 << 20, way, readers)
    assert found["surely"]
    # Seconds are told to the thousandth.
    seconds = found["bytes"] / found["bytes_per_second"]
    assert found["seconds"] == pytest.approx(seconds, abs=0.001)
    assert began - 1 <= found["measured_at"] <= time.time() + 1


def test_what_memory_holds_is_no_rate_of_the_disk(on_disk: Path, write_tensors: Any) -> None:
    write_tensors(on_disk / "a.safetensors", {"w": SIZE})
    files = [str(on_disk / "a.safetensors")]
    assert in_memory(files) == 1
    assert rate.measure(files, MAPPED, 1, 32 << 20, 30) == {
        "why": "its files are in memory already"
    }


def test_files_that_memory_holds_in_part_are_forgotten_first(
    on_disk: Path, write_tensors: Any
) -> None:
    write_tensors(on_disk / "a.safetensors", {"w": SIZE})
    forget(on_disk / "a.safetensors")
    with (on_disk / "a.safetensors").open("rb") as handle:
        handle.read(16 << 20)
    found = rate.measure([str(on_disk / "a.safetensors")], AHEAD, 2, SIZE, 300)
    assert found["bytes"] >= SIZE
    assert found["surely"]


def test_a_slow_store_is_not_read_beyond_its_time(
    on_disk: Path, write_tensors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tensors(on_disk / "a.safetensors", {"w": SIZE})
    forget(on_disk / "a.safetensors")
    whole = os.pread

    def slow(handle: int, size: int, offset: int) -> bytes:
        time.sleep(0.05)
        return whole(handle, size, offset)

    monkeypatch.setattr(os, "pread", slow)
    found = rate.measure([str(on_disk / "a.safetensors")], AHEAD, 2, SIZE, 0.5)
    # It is looked at the time after each piece, however long that took.
    assert 0 < found["bytes"] < SIZE


def test_a_rate_is_kept_for_the_same_files_mount_and_way_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "c/rates.json")
    storage = {"place": "/m", "point": "/", "kind": "nfs4", "source": "s:/m", "options": "rw"}
    mark = rate.fingerprint(storage, "f", AHEAD, 8)
    assert rate.kept(path, "/m", mark) == {}
    rate.keep(path, "/m", mark, {"bytes_per_second": 7})
    rate.keep(path, "/other", "x", {"bytes_per_second": 8})
    assert rate.kept(path, "/m", mark) == {"bytes_per_second": 7}
    for other in (
        rate.fingerprint({**storage, "options": "rw,nconnect=8"}, "f", AHEAD, 8),
        rate.fingerprint(storage, "g", AHEAD, 8),
        rate.fingerprint(storage, "f", MAPPED, 1),
    ):
        assert rate.kept(path, "/m", other) == {}
    Path(path).write_text("{")
    assert rate.kept(path, "/m", mark) == {}
    rate.keep(path, "/m", mark, {"bytes_per_second": 9})
    assert list(json.loads(Path(path).read_text())) == ["/m"]


def test_without_files_there_is_no_rate() -> None:
    assert rate.measure([], MAPPED, 1, SIZE, 1) == {"why": "there are no files"}
