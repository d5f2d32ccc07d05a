"""From another network namespace, a host with a door shows the door and SSH, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from .running import HAPROXY, ROOT

HERE, THERE = "192.0.2.1", "192.0.2.2"
PROGRAM = [sys.executable, "-m", "tests.unit.door.outside"]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def networks() -> Iterator[tuple[str, str]]:
    """Give the host of the door and the outside, each a network, with a cable between."""
    if HAPROXY is None or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs haproxy, root and ip")
    host, outside = (f"door-{name}-{os.getpid()}" for name in ("host", "out"))
    with ExitStack() as stack:
        for one in (host, outside):
            ip("netns", "add", one)
            stack.callback(ip, "netns", "del", one)
        ip("link", "add", "v0", "netns", host, "type", "veth", "peer", "v0", "netns", outside)
        for one, address in ((host, HERE), (outside, THERE)):
            ip("-n", one, "address", "add", f"{address}/24", "dev", "v0")
            for link in ("lo", "v0"):
                ip("-n", one, "link", "set", link, "up")
        yield host, outside


@pytest.mark.soak
def test_the_outside_finds_the_door_and_ssh_and_nothing_else(networks: tuple[str, str]) -> None:
    host, outside = networks

    def seen() -> list[int]:
        argv = ["ip", "netns", "exec", outside, *PROGRAM, "scan", HERE]
        done = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True)
        found: list[int] = json.loads(done.stdout)
        return found

    process = subprocess.Popen(
        ["ip", "netns", "exec", host, *PROGRAM, "serve"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        ports: dict[str, Any] = json.loads(process.stdout.readline())
        assert seen() == sorted([22, ports["door"]])
        # An engine that listens there as well is found.
        process.stdin.write("8006\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() == "8006"
        assert seen() == sorted([22, ports["door"], 8006])
        process.stdin.close()
    assert process.returncode == 0
