"""Ports for tests that must name one before anybody listens on it."""

from __future__ import annotations

import os
import socket
from itertools import count
from pathlib import Path

from vllm_ansible.plan.ports import cluster_ports

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
WORKERS = 8
# Where this process begins: another run of the tests may go on beside it.
_TURN = count(os.getpid() * 37)


def _pool() -> range:
    """Return the ports of this worker: above what the kernel hands out to whoever asks for any.

    A port of the kernel's own range that was let go may belong to another program at once, if only
    as the near end of one of its connections.
    """
    last = int(RANGE.read_text().split()[1])
    width = (65536 - last - 1) // WORKERS
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    return range(last + 1 + worker * width, last + 1 + (worker + 1) * width)


def free_ports(number: int, address: str = "127.0.0.1") -> list[int]:
    """Return so many ports of an address that nobody listens on, and no other worker gets."""
    pool = _pool()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found: list[int] = []
    for _ in pool:
        port = pool[next(_TURN) % len(pool)]
        with socket.socket(family, socket.SOCK_STREAM) as one:
            try:
                one.bind((address, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == number:
            return found
    raise RuntimeError(f"fewer than {number} free ports between {pool[0]} and {pool[-1]}")


def free_port(address: str = "127.0.0.1") -> int:
    """Return one port of an address that nobody listens on."""
    return free_ports(1, address)[0]


def port_base() -> int:
    """Return a `port_base` behind which nobody listens on the ports of a cluster itself."""
    while True:
        first, *_, last = free_ports(3)
        if last == first + 2:
            return first - cluster_ports(0).coordinator
