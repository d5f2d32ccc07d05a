"""What the script leaves on a node at its end: its `keep`, by a real shell and without Slurm."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.clone import wait_until
from vllm_ansible.slurm.standalone import standalone

from .layouts import layout

SHARED = Path("/dev/shm")  # noqa: S108  where the kernel has it


class Node:
    """A node of a job: its own directory, the logs of the job, and `keep`."""

    def __init__(self, directory: Path, grace_seconds: int) -> None:
        self.local, self.logs = directory / "local", directory / "logs"
        self.logs.mkdir()
        text = standalone(layout("tensor in one node"))
        function = text[text.index("\nkeep() {") : text.index("\nkeep_nodes() {")]
        self.keep = subprocess.Popen(
            ["bash", "-c", f"{function}\nkeep"],
            env={
                "PATH": os.environ["PATH"],
                "LOCAL": str(self.local),
                "LOGS": str(self.logs),
                "GRACE": str(grace_seconds),
                "SLURMD_NODENAME": "gpu1",
            },
            start_new_session=True,
        )
        wait_until((self.local / "begun").exists, 60, "a directory")

    def end(self) -> None:
        self.keep.send_signal(signal.SIGTERM)
        assert self.keep.wait(120) == 0


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    made = Node(tmp_path, getattr(request, "param", 600))
    yield made
    # Slurm would end what it has left in its step: what it slept with.
    os.killpg(made.keep.pid, signal.SIGKILL)
    made.keep.wait()


def shared(mapped: bool = False) -> tuple[Path, mmap.mmap | None]:
    path = SHARED / f"psm_{uuid.uuid4().hex[:8]}"
    with path.open("w+b") as file:
        file.truncate(4096)
        return path, mmap.mmap(file.fileno(), 4096) if mapped else None


def test_its_directory_is_private_and_goes(node: Node) -> None:
    assert oct(node.local.stat().st_mode)[-3:] == "700"
    node.end()
    assert not node.local.exists()


@pytest.mark.parametrize(("node", "deaf"), [(600, False), (2, True)], indirect=["node"])
def test_what_still_runs_is_asked_to_end_and_then_killed(node: Node, deaf: bool) -> None:
    trap = "trap '' TERM; " if deaf else ""
    with subprocess.Popen(
        ["bash", "-c", f"{trap}echo on; while :; do sleep 0.1; done"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        (node.local / "pids" / "r1-ray").write_text(str(process.pid))
        node.keep.send_signal(signal.SIGTERM)
        status = process.wait(120)
    assert status == -(signal.SIGKILL if deaf else signal.SIGTERM)
    assert node.keep.wait(120) == 0


def test_what_rays_workers_said_is_kept(node: Node) -> None:
    logs = node.local / "0" / "session_2026" / "logs"
    logs.mkdir(parents=True)
    (logs / "worker-1.out").write_text("rank 1")
    node.end()
    assert (node.logs / "gpu1-ray-session" / "worker-1.out").read_text() == "rank 1"


def test_shared_memory_goes_where_it_is_new_and_nobodys(node: Node, tmp_path: Path) -> None:
    older, _ = shared()
    os.utime(older, (1, 1))
    # What the kernel says of both times may be the same for a moment.
    wait_until(lambda: _newer(tmp_path, node.local / "begun"), 60, "another time")
    (used, held), (dead, _) = shared(mapped=True), shared()
    try:
        node.end()
        assert (older.exists(), used.exists(), dead.exists()) == (True, True, False)
        assert held is not None
    finally:
        for path in (older, used, dead):
            path.unlink(missing_ok=True)


def _newer(directory: Path, than: Path) -> bool:
    mark = directory / "mark"
    mark.touch()
    return mark.stat().st_mtime_ns > than.stat().st_mtime_ns
