"""A network namespace behind a link of a given rate, for tests that need a slow client."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# Of no network of the lab. The host is the first, the namespace the second.
ADDRESS = "10.213.77"


@contextmanager
def slow_link(rate: str) -> Iterator[str]:
    """Make a network namespace behind a link of this rate, and return its name."""
    if os.geteuid() or not shutil.which("tc"):
        pytest.skip("a link of a known rate needs root and tc")
    name, inner = f"va{os.getpid()}", f"vb{os.getpid()}"
    commands = [
        f"ip netns add {name}",
        f"ip link add {name} type veth peer name {inner} netns {name}",
        f"ip addr add {ADDRESS}.1/24 dev {name}",
        f"ip link set {name} up",
        f"ip -n {name} addr add {ADDRESS}.2/24 dev {inner}",
        f"ip -n {name} link set {inner} up",
        f"ip -n {name} link set lo up",
        f"tc qdisc add dev {name} root tbf rate {rate} burst 3000 latency 20s",
    ]
    try:
        for one in commands:
            subprocess.run(one.split(), check=True)
        yield name
    finally:
        # A namespace takes its end of the link with it, some time after.
        subprocess.run(["ip", "link", "del", name], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "del", name], check=False)
