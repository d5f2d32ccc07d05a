"""A cluster with two machines, and the process that watches its limits."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vllm_ansible.provision.lambda_settings import settings
from vllm_ansible.provision.watcher import end, watch

from .world import EAST, GH200, World

HOUR = 3600.0
HOLDER = """
import fcntl, os, signal, sys
lock = open(sys.argv[1], "a+")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.truncate(0)
print(os.getpid(), file=lock, flush=True)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def suspended(lock: Path) -> Iterator[int]:
    """Hold a lock in a process that is suspended, as by Ctrl-Z; give its number."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-c", HOLDER, str(lock)]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()


class Watched:
    """A cluster with two machines, an hour old, and the process that watches its limits."""

    def __init__(self, world: World, state: Path | None = None) -> None:
        self.world = world
        self.key = world.directory / "key"
        self.key.write_text("secret")
        self.key.chmod(0o600)
        self.file = (state or world.directory / "state") / "r1" / "lambda-meter.json"
        # The watcher has no other clock than the machine's.
        world.now = time.time() - HOUR
        world.cloud.account.faults.boot_seconds = 0
        world.cloud.account.faults.terminating_seconds = 0
        world.converge(2)

    def variables(self, **more: Any) -> dict[str, Any]:
        return {
            "cluster_name": "r1",
            "lambda_api_key_file": str(self.key),
            "lambda_ssh_key_name": "mine",
            "lambda_instance_types": [GH200],
            "lambda_regions": [EAST],
            "lambda_endpoint": self.world.cloud.url,
            "lambda_request_seconds": 0,
            "node_count": 2,
            # As the world's machines are tagged.
            "lambda_owner": "ann@here",
            **more,
        }

    def end(self) -> None:
        """Have nobody watch any more, whatever is rented."""
        end(self.file)

    def watch(self, **more: Any) -> bool:
        variables = self.variables(**more)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        return watch(self.file, variables, settings(variables, "here"))

    def wait(self, seconds: float = 120) -> None:
        """Wait until the process has ended."""
        until = time.monotonic() + seconds
        while self.file.exists() or self.runs:
            assert time.monotonic() < until, self.log
            time.sleep(0.05)

    @property
    def runs(self) -> bool:
        lock = self.file.with_suffix(".lock")
        if not lock.exists():
            return False
        with lock.open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @property
    def processes(self) -> list[int]:
        """Ids of the processes that watch, or wait for their turn."""
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            try:
                words = (one / "cmdline").read_bytes().split(b"\0")
                state = (one / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if os.fsencode(self.file) in words and state != "Z":
                found.append(int(one.name))
        return found

    @property
    def log(self) -> str:
        log = self.file.with_suffix(".log")
        return log.read_text() if log.exists() else ""
