"""Many short requests on many connections of a door, and how they end.

Run by hand: python -m tests.unit.door.pressing --threads 2 --seconds 60
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

from tests.ports import free_port
from vllm_ansible.node.engine.router import ask

from .running import ALICE, ROOT, Running

# The engine needs 5 ms for an answer; who got none after this will get none.
PATIENCE = 10
# A head, a moment, the body: as engines do whose web server writes them one after the other.
MOMENT = 0.005
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 60}}],
        "usage": {"prompt_tokens": 7, "total_tokens": 12, "completion_tokens": 5},
    }
).encode()
EVENTS = 100
PAUSE = 0.02
EVENT = (
    b'data: {"choices":[{"delta":{"content":"a"}}],'
    b'"usage":{"prompt_tokens":7,"total_tokens":8,"completion_tokens":1}}\n\n'
)


class Answer(asyncio.Protocol):
    """One connection of the engine: each request gets the same answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET /health"):
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        elif not data.startswith(b"POST"):
            return
        elif b'"stream": true' in data:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            )
            self.event(EVENTS)
        else:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(ANSWER)
            )
            asyncio.get_running_loop().call_later(MOMENT, self.transport.write, ANSWER)

    def event(self, left: int) -> None:
        """Send the events of a stream, one after the other."""
        if self.transport.is_closing():
            return
        if not left:
            self.transport.close()
            return
        self.transport.write(EVENT)
        asyncio.get_running_loop().call_later(PAUSE, self.event, left - 1)


async def serve(port: int) -> None:
    """Be the engine, until ended."""
    server = await asyncio.get_running_loop().create_server(Answer, "127.0.0.1", port)
    await server.serve_forever()


class QuickEngine:
    """An engine in a process of its own; use it as a context."""

    def __init__(self, model: str = "m") -> None:
        self.model, self.port = model, free_port()

    def __enter__(self) -> Self:
        argv = [sys.executable, "-m", "tests.unit.door.pressing"]
        self.process = subprocess.Popen([*argv, "--serve", str(self.port)], cwd=ROOT)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)


class Press:
    """Asks until its time is over, and counts how requests end."""

    def __init__(self, door: Running, seconds: float, connections: int, stream: bool) -> None:
        self.door, self.end, self.connections = door, time.monotonic() + seconds, connections
        self.ends: Counter[str] = Counter()
        self.events = 0
        body = json.dumps({"model": "m", "stream": stream, "messages": [{"content": "hello"}]})
        self.question = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: door\r\nAuthorization: Bearer {ALICE}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    async def _answer(self, reader: asyncio.StreamReader) -> str:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length:" in head:
            length = head.split(b"content-length:")[1].split(b"\r\n")[0]
            await reader.readexactly(int(length))
        else:
            while piece := await reader.read(1 << 16):
                self.events += piece.count(b"data: ")
        return head.split(b" ", 2)[1].decode()

    async def _connection(self, requests: int) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.door.port, ssl=self.door.context
        )
        try:
            for _ in range(requests):
                if time.monotonic() > self.end or reader.at_eof():
                    return
                writer.write(self.question)
                try:
                    status = await asyncio.wait_for(self._answer(reader), PATIENCE)
                except TimeoutError:
                    self.ends["never"] += 1
                    return
                self.ends[status] += 1
        finally:
            writer.close()

    async def _user(self, number: int) -> None:
        while time.monotonic() < self.end:
            try:
                # Some keep their connection, some make a new one for each request.
                await self._connection(1 if number % 4 == 0 else 200)
            except ConnectionRefusedError:
                self.ends["HAProxy ended"] += 1
                self.end = 0
            except (OSError, asyncio.IncompleteReadError):
                self.ends["broken off"] += 1

    async def _all(self) -> None:
        await asyncio.gather(*(self._user(number) for number in range(self.connections)))

    def run(self) -> Counter[str]:
        """Return how many requests ended how."""
        asyncio.run(self._all())
        return self.ends


def press(
    directory: Path, seconds: float, connections: int = 32, stream: bool = False, **settings: Any
) -> dict[str, Any]:
    """Return how requests ended, how many came a second, and what HAProxy's log has of Lua."""
    door = Running(directory, **settings)
    door.engines = [QuickEngine()]  # type: ignore[list-item]
    with door:
        shown = ask(door.admin, "show info")
        worker = next(line.split()[1] for line in shown.splitlines() if line.startswith("Pid:"))
        before, started = used(worker), time.monotonic()
        pressing = Press(door, seconds, connections, stream)
        ends = pressing.run()
        took, spent = time.monotonic() - started, used(worker) - before
        log = door.log.read_text(errors="replace").splitlines()
    faults = Counter(
        re.sub("[0-9]+", "N", line)
        for line in log
        if line.startswith("[ALERT]") and re.search("Lua|worker|count", line)
    )
    return {
        "ends": dict(ends),
        "requests_per_second": round(sum(ends.values()) / took),
        "events_per_second": round(pressing.events / took),
        # Of HAProxy alone, whatever else the machine does; below 0 where its worker has ended.
        "processor_seconds": round(spent, 2),
        "faults": dict(faults),
    }


def used(pid: str) -> float:
    """Return the seconds of processor time of a process, 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Press a door as the options say, and print what came of it."""
    options = argparse.ArgumentParser()
    options.add_argument("--serve", type=int, default=0)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--connections", type=int, default=32)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--stream", action="store_true")
    given = options.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
        return
    with tempfile.TemporaryDirectory() as directory:
        found = press(
            Path(directory),
            given.seconds,
            given.connections,
            given.stream,
            door_threads=given.threads,
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
