"""What the watchdog names of a host that is harmed, for real: its link, a file system, its memory.

The engine is a stand-in; the kernel cuts, fills and kills. It needs root and network namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.lab import wire
from vllm_ansible.node.watchdog import state_file

from .running import Running

pytestmark = pytest.mark.soak
NAMED_SECONDS = 30.0
# No longer from one look of a test to the next, but where it waits for a processor.
LOOK_SECONDS = 1.0
HERE, THERE = "10.255.77.1", "10.255.77.2"
GROUPS = Path("/sys/fs/cgroup")
# Fills shared memory from within a group; whoever else is in it has more that is its own.
TAKES = 'echo $$ > "$1/cgroup.procs"; exec dd if=/dev/zero of="$2" bs=64k count=2048'


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Apart(Running):
    """An engine whose other host is a network namespace, at the end of a cable."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.here, self.there = f"dog{os.getpid()}a", f"dog{os.getpid()}b"

    def inside(self, namespace: str, *words: str) -> None:
        ip("netns", "exec", namespace, *words)

    def lay(self) -> None:
        """Lay the cable."""
        for one in (self.here, self.there):
            ip("netns", "add", one)
            self.inside(one, "ip", "link", "set", "lo", "up")
        ends = ["va", "netns", self.here, "type", "veth", "peer", "name", "vb"]
        ip("link", "add", *ends, "netns", self.there)
        self.inside(self.here, "ip", "address", "add", f"{HERE}/24", "dev", "va")
        self.inside(self.here, "ip", "link", "set", "va", "up")
        self.inside(self.there, "ip", "link", "add", "br0", "type", "bridge")
        self.inside(self.there, "ip", "address", "add", f"{THERE}/24", "dev", "br0")
        self.inside(self.there, "ip", "link", "set", "br0", "up")
        self.inside(self.there, "ip", "link", "set", "vb", "master", "br0", "up")

    def remove(self) -> None:
        for one in (self.here, self.there):
            subprocess.run(["ip", "netns", "del", one], check=False)

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        peer = {"host": "h2", "address": THERE, "port": 9}
        return {**settings, "engines": [{**settings["engines"][0], "peers": [peer]}]}

    def _run(self, words: list[str], name: str, cwd: Path) -> subprocess.Popen[bytes]:
        namespace = ["ip", "netns", "exec", self.here]
        log = (self.directory / f"{name}.log").open("wb")
        mark = {"VLLM_ANSIBLE_PROCESS": str(self.cluster / f"processes/{name}.json")}
        process = subprocess.Popen(
            [*namespace, sys.executable, *words],
            env={**os.environ, **mark},
            cwd=cwd,
            stdout=log,
            stderr=log,
        )
        self.processes.append(process)
        return process

    def slow(self, seconds: float) -> subprocess.Popen[bytes]:
        """Put a slow cable in place of the one that is there, until it is terminated."""
        words = [sys.executable, wire.__file__, "vb", "slow", "br0", str(seconds)]
        return subprocess.Popen(["ip", "netns", "exec", self.there, *words])


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    needs_root()
    one = Apart(tmp_path)
    try:
        one.lay()
        with one:
            one.serves()
            # Its host has answered some connections.
            time.sleep(10)
            yield one
    finally:
        one.remove()


def needs_root() -> None:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("cables, file systems and groups of memory need root and ip")


def named(running: Running, began: float, kind: str) -> dict[str, Any]:
    """Return what was found, once it is named; print after how many seconds that was."""
    looked, late = time.monotonic(), 0.0

    def find() -> list[dict[str, Any]]:
        nonlocal looked, late
        now = time.monotonic()
        # What the machine itself gave nobody, this test as little as the watchdog.
        late += max(0.0, now - looked - LOOK_SECONDS)
        looked = now
        return [one for one in running.named() if one["kind"] == kind]

    found: dict[str, Any] = running.until(find)[0]
    print(f"{kind}: named after {found['named_at'] - began:.1f} s: {found['found']}")
    assert found["named_at"] - began <= NAMED_SECONDS + late
    return found


def over(running: Running) -> None:
    running.until(lambda: running.named() == [])


def test_a_cut_link_is_named_until_it_is_back(apart: Apart) -> None:
    began = time.time()
    apart.inside(apart.there, "ip", "link", "set", "vb", "nomaster")
    assert f"h2 ({THERE}), which has ranks of r1" in named(apart, began, "unreachable")["found"]
    apart.inside(apart.there, "ip", "link", "set", "vb", "master", "br0")
    over(apart)


def test_a_slow_link_is_named_until_it_is_as_before(apart: Apart) -> None:
    began = time.time()
    with apart.slow(0.1) as cable:
        try:
            assert f"the link to h2 ({THERE})" in named(apart, began, "slow")["found"]
        finally:
            cable.send_signal(signal.SIGTERM)
    over(apart)


def test_a_full_file_system_is_named_until_it_has_space(running: Running) -> None:
    needs_root()
    logs = running.cluster / "logs"
    logs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "test", logs], check=True)
    try:
        time.sleep(5)
        assert running.named() == []
        began = time.time()
        with pytest.raises(OSError, match="No space"), (logs / "fills").open("wb", 0) as file:
            while True:
                file.write(bytes(1 << 16))
        assert f"the file system of {logs} on h1 is full" in named(running, began, "full")["found"]
        (logs / "fills").unlink()
        over(running)
    finally:
        subprocess.run(["umount", logs], check=True)


@pytest.mark.parametrize("options", ["size=1m", "size=1m,nr_inodes=12"])
def test_a_full_file_system_of_the_watchdogs_own_state_is_kept(
    tmp_path: Path, options: str
) -> None:
    needs_root()
    there = tmp_path / "state"
    there.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "test", there], check=True)
    try:
        state_file.write(str(there), {"findings": []})
        filled: list[Path] = []
        with contextlib.suppress(OSError):
            while True:
                filled.append(there / str(len(filled)))
                filled[-1].write_bytes(bytes(0 if "inodes" in options else 1 << 12))
        for look in range(4):
            state_file.write(str(there), {"findings": ["full"] * 100, "look": look})
            found = json.loads((there / "state.json").read_text())
            assert (len(found["findings"]), found["look"]) == (100, look)
    finally:
        subprocess.run(["umount", there], check=True)


def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_named_by_that(running: Running) -> None:
    needs_root()
    second = GROUPS / "cgroup.controllers"
    above = GROUPS if second.exists() else GROUPS / "memory"
    limit = "memory.max" if second.exists() else "memory.limit_in_bytes"
    group = above / f"vllm-test-{os.getpid()}"
    group.mkdir()
    rank = running.ranks()["VLLM::Worker_TP1"]
    fills = Path(f"/dev/shm/vllm-test-{os.getpid()}")  # noqa: S108
    try:
        (group / limit).write_text(str(32 << 20))
        (group / "cgroup.procs").write_text(str(rank))
        time.sleep(10)
        began = time.time()
        subprocess.run(["sh", "-c", TAKES, "sh", group, fills], check=False)
        running.until(lambda: "VLLM::Worker_TP1" not in running.ranks())
        found = named(running, began, "memory")
        assert "of the processes of r1-serve on h1 for want of memory" in found["found"]
        # The cause is named with, or before, what it has led to.
        lost = running.until(lambda: [one for one in running.named() if one["kind"] == "lost"])
        assert found["named_at"] <= lost[0]["named_at"]
    finally:
        fills.unlink(missing_ok=True)
        if rank in running.ranks().values():
            os.kill(rank, signal.SIGKILL)
        running.until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
