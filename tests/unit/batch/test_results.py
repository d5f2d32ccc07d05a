"""The file of answers by itself: who may read it, and what becomes of it when a run is ended."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from vllm_ansible.batch import results
from vllm_ansible.batch.results import Results, Unnoted
from vllm_ansible.problem import PlanError

DIGESTS = {"a": "1", "b": "2"}


def record(tag: str) -> dict[str, Any]:
    return {"tag": tag, "digest": DIGESTS[tag], "sent": 1, "ok": True, "text": "x"}


def tags(path: Path) -> list[str]:
    return [json.loads(line)["tag"] for line in path.read_text().splitlines()]


def test_an_answer_on_its_way_to_the_disk_gets_there_when_the_run_is_ended(
    tmp_path: Path,
) -> None:
    free, one_at_a_time = threading.Event(), ThreadPoolExecutor(1)
    path = tmp_path / "out"

    async def ended(kept: Results) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(one_at_a_time)
        # The write waits for a thread that does something else.
        _ = loop.run_in_executor(None, free.wait)
        adding = asyncio.ensure_future(kept.add(record("a")))
        await asyncio.sleep(0.01)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        free.set()

    with Results(path, DIGESTS) as kept:
        asyncio.run(ended(kept))
    assert tags(path) == ["a"]


def test_a_write_that_fails_when_nobody_waits_for_it_is_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def ended(kept: Results) -> None:
        adding = asyncio.ensure_future(kept.add(record("a")))
        await asyncio.sleep(0)
        adding.cancel()
        await asyncio.wait([adding])

    monkeypatch.setattr(results.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), Results(tmp_path / "out", DIGESTS) as kept:
        asyncio.run(ended(kept))
    gc.collect()
    assert not caplog.records


def test_where_the_answers_lie_and_who_may_read_them_stays_as_it_was(tmp_path: Path) -> None:
    path, link = tmp_path / "elsewhere", tmp_path / "out"
    path.touch(0o600)
    link.symlink_to(path)
    with Results(link, DIGESTS) as kept:
        for tag in ("b", "a"):
            asyncio.run(kept.add(record(tag)))
        kept.finish()
    assert tags(path) == ["a", "b"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert link.is_symlink()


@pytest.mark.parametrize(("tag", "digest"), [("c", "3"), ("a", "9")])
def test_a_prompt_that_came_or_changed_during_the_run_is_refused(
    tmp_path: Path, tag: str, digest: str
) -> None:
    with Results(tmp_path / "out", DIGESTS) as kept:
        assert kept.lacks("a", "1")
        asyncio.run(kept.add(record("a")))
        assert not kept.lacks("a", "1")
        with pytest.raises(PlanError, match="changed while they were sent"):
            kept.lacks(tag, digest)


def test_a_lock_on_a_journal_that_has_just_gone_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, gone = results.fcntl.flock, []

    def flock(file: BinaryIO, how: int) -> None:
        if not gone:
            # The run before ends between the opening and the lock.
            gone.append(True)
            (tmp_path / "out.sent").unlink()
        real(file, how)

    monkeypatch.setattr(results.fcntl, "flock", flock)
    with Results(tmp_path / "out", DIGESTS), pytest.raises(PlanError, match="another run"):
        Results(tmp_path / "out", DIGESTS).__enter__()


def test_a_line_of_the_journal_is_whole_or_the_request_does_not_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = os.write, [2, 99]

    def write(descriptor: int, line: bytes) -> int:
        if not sizes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, line[: sizes.pop(0)])

    with Results(tmp_path / "out", DIGESTS) as kept:
        monkeypatch.setattr(results.os, "write", write)
        kept.sending("a")
        assert kept.journal.read_text() == '"a"\n'
        with pytest.raises(Unnoted, match="No space left"):
            kept.sending("b")
        monkeypatch.undo()
