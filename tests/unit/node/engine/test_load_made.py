"""Limits of samples between what is full and what is not: links and processors, made by hand."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean

import pytest

from tests.flows.clone import wait_until
from tests.slow_link import ADDRESS, slow_link
from vllm_ansible.benchmark.bottleneck import BUSY, UNSENT
from vllm_ansible.node.engine import load_samples

pytestmark = pytest.mark.soak
USERS = 16
# Sixteen streams of 250 bytes each 60 ms are 0.53 Mbit/s, 0.64 with TCP's and IP's headers.
SERVER = """
import asyncio, sys
async def answer(reader, writer):
    try:
        while True:
            writer.write(b"x" * 250)
            await writer.drain()
            await asyncio.sleep(0.06)
    except OSError:
        writer.close()
async def main():
    server = await asyncio.start_server(answer, "0.0.0.0", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"""
CLIENT = """
import asyncio, sys
async def one():
    reader, writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    while await reader.read(65536):
        pass
async def main():
    await asyncio.gather(*(one() for _ in range(int(sys.argv[3]))))
asyncio.run(main())
"""
# Works for 5 ms as often as it can, and asks for a fifth of a processor.
WORKS = """
import time
while True:
    until = time.thread_time() + 0.005
    while time.thread_time() < until:
        pass
    time.sleep(0.02)
"""


@contextmanager
def running(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*argv], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("rate", "full"), [("100mbit", False), ("1mbit", False), ("300kbit", True), ("60kbit", True)]
)
def test_a_full_link_is_known_by_what_is_not_acknowledged(rate: str, full: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def look() -> dict[str, int]:
        with open("/proc/net/tcp", encoding="utf-8") as file:
            return load_samples.sockets(file.read(), port)

    with slow_link(rate) as name, running(sys.executable, "-c", SERVER, str(port)):
        client = [sys.executable, "-c", CLIENT, f"{ADDRESS}.1", str(port), str(USERS)]

        def listens() -> bool:
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, 60, "the server")
        with running("ip", "netns", "exec", name, *client):
            wait_until(lambda: look()["server"] >= USERS, 60, "connections")
            shares = []
            for _ in range(10):
                time.sleep(0.5)
                seen = look()
                shares.append(seen["server_unsent"] / seen["server"])
    share = mean(shares)
    print(f"{rate}: {share:.2f} of the connections hold bytes that are not acknowledged")
    assert (share >= UNSENT) is full, shares


@pytest.mark.parametrize("starved", [False, True])
def test_a_thread_without_a_processor_is_known_by_its_wait(starved: bool) -> None:
    place = str(max(os.sched_getaffinity(0)))
    burn = ["taskset", "-c", place, sys.executable, "-c", "while True: pass"]
    nice = ["nice", "-n", "15", "taskset", "-c", place] if starved else []
    with running(*nice, sys.executable, "-c", WORKS) as works:
        hogs = [subprocess.Popen(burn) for _ in range(3 if starved else 0)]
        try:
            wait_until(lambda: re.match(r"python", name_of(works.pid)), 60, "the program")
            first, began = load_samples.thread(works.pid), time.monotonic()
            time.sleep(10)
            last, seconds = load_samples.thread(works.pid), time.monotonic() - began
        finally:
            for one in hogs:
                one.kill()
                one.wait()
    busy = (last[0] - first[0] + last[1] - first[1]) / load_samples.NANO / seconds
    with open("/proc/loadavg", encoding="utf-8") as file:
        load = file.read().split()[0]
    print(f"starved {starved}: {busy:.2f} of the time it ran or waited, load {load}")
    assert (busy >= BUSY) is starved


def name_of(pid: int) -> str:
    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        return file.read()
