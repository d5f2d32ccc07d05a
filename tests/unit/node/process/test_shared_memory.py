"""Shared memory of processes that end, or are killed, goes; what belongs to others stays."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_ansible.node import launcher

from ..conftest import Host, wait_until

SHARED = Path("/dev/shm")  # noqa: S108  where the kernel has it
# A process, and one below it that has mapped what it made: neither removes it.
SHARES = """
import os, sys, time
from multiprocessing import resource_tracker, shared_memory
made = shared_memory.SharedMemory(create=True, size=4096)
resource_tracker.unregister(made._name, "shared_memory")
os.fork()
open(f"{made.name}.{os.getpid()}", "w").close()
time.sleep(600)
"""
SHARER = {"argv": [sys.executable, "-c", SHARES]}


@pytest.fixture
def others() -> Iterator[Path]:
    """Give shared memory of this user that nobody has mapped just now."""
    path = SHARED / f"psm_{uuid.uuid4().hex[:8]}"
    path.write_bytes(bytes(4096))
    yield path
    path.unlink(missing_ok=True)


def shared(host: Host) -> Path:
    """Return what the process shares, once both have it."""
    found = wait_until(lambda: (both := list(host.cluster_dir.glob("psm_*.*")))[1:] and both)
    assert len({one.stem for one in found}) == 1
    for one in found:
        one.unlink()
    return SHARED / str(found[0].stem)


def pids(path: Path) -> list[int]:
    """Return who has a file mapped."""
    one = path.stat()
    mark = (f"{os.major(one.st_dev):02x}:{os.minor(one.st_dev):02x}", one.st_ino)
    return [pid for pid in launcher.process_table() if mark in launcher.mapped([pid])]


def test_it_goes_with_a_process_that_is_stopped(host: Host, others: Path) -> None:
    host.manage(SHARER)
    made = shared(host)
    assert made.exists()
    host.manage(state="stopped")
    assert not made.exists() and others.exists()
    assert not list(host.cluster_dir.glob("processes/*.shared"))


def test_it_goes_with_a_process_that_is_killed(host: Host, others: Path) -> None:
    """Its launcher is still there, and was so when it was made."""
    started = host.manage(SHARER)
    made = shared(host)
    os.kill(started["pid"], signal.SIGKILL)
    wait_until(lambda: "exit_status" in host.state())
    assert not made.exists() and others.exists()


@pytest.mark.parametrize("then", ["started", "absent"])
def test_after_a_kill_of_everything_it_goes_with_the_next_run(
    host: Host, others: Path, then: str
) -> None:
    host.manage(SHARER)
    made = shared(host)
    notes = wait_until(lambda: list(host.cluster_dir.glob("processes/*.shared")))
    assert made.name in notes[0].read_text()
    for pid in (host.state()["launcher"]["pid"], *pids(made)):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not pids(made))
    assert made.exists()
    host.manage({"argv": ["/bin/sleep", "600"]} if then == "started" else None, state=then)
    assert not made.exists() and others.exists()


def test_it_stays_as_long_as_another_process_uses_it(host: Host) -> None:
    """As a worker of Ray does with what a server has made."""
    host.manage(SHARER)
    made = shared(host)
    with made.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        host.manage(state="absent")
        assert made.exists()
    host.manage({"argv": ["/bin/sleep", "600"]}, name="e0-ray")
    host.manage(name="e0-ray", state="absent")
    assert not made.exists()


def test_what_another_user_owns_or_may_be_meant_to_last_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service may have mapped what root must not remove for it."""
    monkeypatch.setattr(launcher, "SHARED_DIR", str(tmp_path))
    notes = str(tmp_path / "notes")
    # What ranks on CPUs reduce through has brackets in its name.
    of_vllm = "vllm_dist_19a6-tp:0-[0-1]-cpushm_0"
    names = ("psm_mine", "sem.mp-mine", of_vllm, "libpod_lock", "psm_theirs")
    for name in names:
        (tmp_path / name).write_bytes(bytes(4096))
    files = launcher.shared_files()
    device, inode, _ = files["psm_theirs"]
    theirs = {**files, "psm_theirs": (device, inode, os.getuid() + 1)}
    monkeypatch.setattr(launcher, "shared_files", lambda: theirs)
    holds = (
        "import mmap, sys, time\n"
        "files = [open(path, 'r+b') for path in sys.argv[1:]]\n"
        "held = [mmap.mmap(file.fileno(), 4096) for file in files]\n"
        "print('on', flush=True); time.sleep(600)"
    )
    paths = [str(tmp_path / name) for name in names]
    with subprocess.Popen([sys.executable, "-c", holds, *paths], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"on\n"
        assert len(launcher.mapped([process.pid])) == 5
        launcher.note_shared(notes, {process.pid})
        process.kill()
    assert sorted(launcher.read_notes(notes)) == ["psm_mine", "sem.mp-mine", of_vllm]
    launcher.sweep_shared([notes])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["libpod_lock", "psm_theirs"]


def test_what_the_user_of_a_cluster_owns_is_that_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under systemd nothing watches what a service shares, but it has a user of its own."""
    monkeypatch.setattr(launcher, "SHARED_DIR", str(tmp_path))
    for name in ("psm_0", "nccl-1", "report"):
        (tmp_path / name).write_bytes(bytes(4096))
    launcher.sweep_shared([], os.getuid() + 1)
    assert len(list(tmp_path.iterdir())) == 3
    launcher.sweep_shared([], os.getuid())
    assert [one.name for one in tmp_path.iterdir()] == ["report"]


def test_notes_that_were_torn_or_are_of_another_boot_remove_nothing(
    tmp_path: Path, others: Path
) -> None:
    notes = tmp_path / "notes"
    for text in ('{"psm', "[]", "{}", f'{{"{others.name}": ["00:00", 1, 0]}}', '{"psm_0": []}'):
        notes.write_text(text)
        launcher.sweep_shared([str(notes)])
        assert others.exists() and not notes.exists()
