#!/usr/bin/env python3
"""Processor time of the door for a request, beside that of a bare HAProxy.

.venv/bin/python benchmarks/door.py --rounds 9
.venv/bin/python benchmarks/door.py --rounds 9 --parts --load 0 1 3

Both are the same program with one thread before the same emulated engine, with the same
certificate: the bare one passes everything on, the door looks up a key, holds its limits, counts
tokens and writes its log. They are asked in turn, so that other work falls on both.

With --parts, what the door does is added to the bare one, one part after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.emulators.metered_engine import PROMPT_TOKENS, MeteredEngine
from tests.ports import free_port
from tests.unit.door.running import ALICE, FIXED, HAPROXY, Running, client, wait_until
from tests.unit.router.client import listens
from vllm_ansible.node.engine.router import ask

MODEL = "org/model-8b-instruct"
# What a chat of some turns has.
PROMPT = "What is the capital of this country, and how many people live there? " * 30
BARE = """
global
    nbthread 1
    maxconn 500
    {settings}
    ssl-load-extra-del-ext
    ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets
defaults
    mode http
    option http-no-delay
    {connections}
    timeout connect 2s
    timeout client 30s
    timeout server 60s
frontend bare
    bind 127.0.0.1:{port} ssl crt {tls}.crt alpn h2,http/1.1
    {rules}
    default_backend engine
{tables}
backend engine
    option httpchk
    http-check send meth GET uri /health ver HTTP/1.1 hdr Host engine
    default-server check inter 1s
    server engine 127.0.0.1:{engine}
"""
NOTHING = """
local Idle = { id = "idle", flags = filter.FLT_CFG_FL_HTX }
Idle.__index = Idle
function Idle:new() return setmetatable({}, Idle) end
local Reader = { id = "reader", flags = filter.FLT_CFG_FL_HTX }
Reader.__index = Reader
function Reader:new() return setmetatable({}, Reader) end
function Reader:http_headers(_, message)
  if message:is_resp() then filter.register_data_filter(self, message.channel) end
end
function Reader:http_payload(_, message) message:body() end
core.register_filter("idle", Idle, function(one) return one end)
core.register_filter("reader", Reader, function(one) return one end)
core.register_action("nothing", { "http-req" }, function() end)
"""
BODY_BYTES = 4 << 20


@dataclass(frozen=True)
class Part:
    """What is added to a bare HAProxy: to its settings, its rules, its tables."""

    name: str
    settings: str = ""
    rules: str = ""
    tables: str = ""


def parts(directory: Path) -> list[Part]:
    """Return what the door does, in HAProxy's own words; of Lua, calls that do nothing."""
    rendered = (directory / "haproxy.cfg").read_text().splitlines()

    def lines(*words: str) -> str:
        found = [line for line in rendered if any(word in line for word in words)]
        if len(found) < len(words):
            raise SystemExit(f"the door's haproxy.cfg has no longer all of {words}")
        return "\n".join(found)

    table = next(line for line in rendered if "stick-table" in line)
    lua = f"lua-load {directory}/nothing.lua"
    return [
        Part("log", "log stdout format raw daemon info", "log global\n" + lines("log-format")),
        Part("key", rules=lines("set-var(txn.record)", "set-var(txn.client)")),
        Part("table of clients", rules=lines("track-sc0"), tables=f"backend clients\n{table}"),
        Part("body awaited", rules=lines("wait-for-body time 30s", "del-header")),
        Part("its buffers", f"tune.bufsize {BODY_BYTES + 65536}"),
        Part("action of Lua", lua, "http-request lua.nothing"),
        Part("filter of Lua", rules="filter lua.idle"),
        Part("filter that reads", rules="filter lua.reader"),
    ]


@dataclass(frozen=True)
class Load:
    """What is asked for: tokens of an answer, whether as a stream, on a connection that is kept."""

    name: str
    tokens: int
    stream: bool = False
    kept: bool = True
    requests: int = 100


LOADS = (
    Load("stream of 256 tokens", 256, stream=True, requests=32),
    Load("stream of 16 tokens", 16, stream=True, requests=160),
    Load("whole answer of 256 tokens", 256, requests=320),
    Load("whole answer of 16 tokens", 16, requests=320),
    Load("stream of 16 tokens, new connection", 16, stream=True, kept=False, requests=96),
    Load("whole answer of 16 tokens, new connection", 16, kept=False, requests=160),
)


class Engine(asyncio.Protocol):
    """One connection of an engine that answers as vLLM does: a piece of HTTP for each event."""

    step = 0.01

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where answers go."""
        self.transport: Any = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        """Answer a request once it is whole."""
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        if not found or len(body) < length:
            return
        self.data = b""
        if head.startswith(b"GET"):
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            return
        asked = json.loads(body)
        answers = self.stream(asked) if asked["stream"] else self.whole(asked)
        self.send(answers)

    def send(self, pieces: Iterator[bytes]) -> None:
        """Send one piece now, and the others at the engine's rate."""
        piece = next(pieces, None)
        if piece is None or self.transport.is_closing():
            return
        self.transport.write(piece)
        # As steps do, not all streams at the same moment.
        wait = self.step * (0.5 + random.random())  # noqa: S311 - no secret
        asyncio.get_running_loop().call_later(wait, self.send, pieces)

    def whole(self, asked: dict[str, Any]) -> Iterator[bytes]:
        """Return an answer that is no stream."""
        tokens = int(asked["max_tokens"])
        text = json.dumps(
            {
                "id": f"chatcmpl-{'a1b2' * 8}",
                "object": "chat.completion",
                "created": 1764180000,
                "model": MODEL,
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": " word" * tokens},
                        "logprobs": None,
                        "finish_reason": "length",
                    }
                ],
                "usage": usage(tokens),
                "prompt_logprobs": None,
            }
        ).encode()
        yield (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
            + str(len(text)).encode()
            + b"\r\n\r\n"
            + text
        )

    def stream(self, asked: dict[str, Any]) -> Iterator[bytes]:
        """Return a stream piece by piece, with what its request asks for."""
        options = asked.get("stream_options") or {}
        yield (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        tokens = int(asked["max_tokens"])
        for number in range(tokens + 1):
            delta = {"content": " word"} if number else {"role": "assistant", "content": ""}
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            each = {"usage": usage(number)} if options.get("continuous_usage_stats") else {}
            yield event({"choices": [choice], **each})
        if options.get("include_usage"):
            yield event({"choices": [], "usage": usage(tokens)})
        yield piece(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def usage(tokens: int) -> dict[str, int]:
    """Return what vLLM says of so many tokens."""
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "total_tokens": PROMPT_TOKENS + tokens,
        "completion_tokens": tokens,
    }


def event(members: dict[str, object]) -> bytes:
    """Return an event of a stream in the form and length of vLLM's."""
    head = {
        "id": f"chatcmpl-{'a1b2' * 8}",
        "object": "chat.completion.chunk",
        "created": 1764180000,
        "model": MODEL,
    }
    text = json.dumps({**head, **members}, separators=(",", ":"))
    return piece(f"data: {text}\n\n".encode())


def piece(data: bytes) -> bytes:
    """Return a piece of HTTP's chunked encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve(port: int) -> None:
    """Be the engine, until ended; on a busy machine its health checks shall not fail."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port)
    await server.serve_forever()


class Asked:
    """So many requests of a load, some at the same time."""

    def __init__(self, door: Running, port: int, load: Load, at_once: int) -> None:
        self.door, self.port, self.load, self.left = door, port, load, load.requests
        self.at_once, self.pieces = at_once, 0
        body = json.dumps(
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": PROMPT}],
                "max_tokens": load.tokens,
                "stream": load.stream,
            }
        )
        self.question = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: door\r\nAuthorization: Bearer {ALICE}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    async def answer(self, reader: asyncio.StreamReader) -> None:
        """Read one answer to its end."""
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise SystemExit(f"not answered: {head!r} {await reader.read(300)!r}")
        if b"content-length:" in head:
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            return
        while True:
            size = int(await reader.readline(), 16)
            await reader.readexactly(size + 2)
            if not size:
                return
            self.pieces += 1

    async def user(self) -> None:
        """Ask until nothing is left to ask."""
        writer = None
        while self.left > 0:
            self.left -= 1
            if writer is None or not self.load.kept:
                if writer:
                    writer.close()
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self.port, ssl=self.door.context
                )
            writer.write(self.question)
            await self.answer(reader)
        if writer:
            writer.close()

    async def all(self) -> None:
        """Ask everything."""
        await asyncio.gather(*(self.user() for _ in range(self.at_once)))


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process of one thread, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def worker_of(admin: str) -> int:
    """Return the process that serves."""
    shown = ask(admin, "show info")
    return int(next(line.split()[1] for line in shown.splitlines() if line.startswith("Pid:")))


@contextmanager
def bare(
    door: Running, directory: Path, connections: str, added: Sequence[Part] = ()
) -> Iterator[tuple[int, int]]:
    """Run HAProxy before the same engine, with what is added; gives its port and its process."""
    directory.mkdir()
    port = free_port()
    (directory / "haproxy.cfg").write_text(
        BARE.format(
            directory=directory,
            port=port,
            tls=door.directory / "tls",
            engine=door.engines[0].port,
            connections=connections,
            settings="\n".join(one.settings for one in added),
            rules="\n".join(one.rules for one in added),
            tables="\n".join(one.tables for one in added),
        )
    )
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(HAPROXY), "-db", "-f", str(directory / "haproxy.cfg")],
            stdout=log,
            stderr=log,
            env={**os.environ, **FIXED["door_environment"]},
        )
    try:
        wait_until(lambda: listens(port))
        yield port, process.pid
    finally:
        process.kill()
        process.wait(30)


@contextmanager
def engine_process(port: int) -> Iterator[None]:
    """Run the engine in a process of its own."""
    process = subprocess.Popen([sys.executable, __file__, "--serve", str(port)])
    try:
        wait_until(lambda: listens(port))
        yield
    finally:
        process.kill()
        process.wait(30)


def measure(
    loads: list[Load], rounds: int, at_once: int, by_part: bool
) -> dict[str, dict[str, list[float]]]:
    """Return microseconds of processor time a request by load and way, of each round."""
    limits = {"requests_per_minute": 10**6, "at_once": 500}
    limits |= {"tokens_per_day": 10**9, "tokens_per_month": 10**10}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="db")))
        engine = MeteredEngine(MODEL, free_port())
        stack.enter_context(engine_process(engine.port))
        door = stack.enter_context(
            Running(
                directory,
                clients={"alice": client(ALICE, **limits, models=(MODEL,))},
                engines=[engine],
                door_threads=1,
                door_most_body_bytes=BODY_BYTES,
            )
        )
        ways = {
            "door": (door.port, worker_of(door.admin)),
            "bare": stack.enter_context(bare(door, directory / "b", "option http-server-close")),
        }
        if by_part:
            (directory / "nothing.lua").write_text(NOTHING)
            added = parts(directory)
            for number, part in enumerate(added, 1):
                # The last two are two ways of one part.
                own = [*added[: number - 2], part] if part is added[-1] else added[:number]
                place = directory / f"p{number}"
                running = bare(door, place, "option http-server-close", own)
                ways[part.name] = stack.enter_context(running)
        else:
            ways["bare, kept"] = stack.enter_context(bare(door, directory / "k", ""))
        found: dict[str, dict[str, list[float]]] = {
            load.name: {name: [] for name in ways} for load in loads
        }
        for number in range(rounds + 1):
            for load in loads:
                # Nobody is always first.
                for name in (list(ways), list(ways)[::-1])[number % 2]:
                    port, pid = ways[name]
                    asked = Asked(door, port, load, at_once)
                    before = processor_seconds(pid)
                    asyncio.run(asked.all())
                    used = processor_seconds(pid) - before
                    # The first round fills caches.
                    if number:
                        found[load.name][name].append(1e6 * used / load.requests)
        expected = sum(load.requests for load in loads) * (rounds + 1)
        made = sum(load.requests * load.tokens for load in loads) * (rounds + 1)
        wait_until(lambda: door.used("alice") == (expected, expected * PROMPT_TOKENS, made))
        return found


def spread(values: list[float]) -> str:
    """Return the middle and the middle half."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def print_parts(loads: list[Load], found: dict[str, dict[str, list[float]]]) -> None:
    """Print what each part adds to a request and, of two streams, to an event."""
    names = [name for name in found[loads[0].name] if name != "door"]
    streams = [number for number, load in enumerate(loads) if load.stream and load.kept]
    head = ["with", *(f"{load.name}, us" for load in loads)]
    if len(streams) == 2:
        head.append("event, us")
    print(f"| {' | '.join(head)} |")
    print("|---" * len(head) + "|")
    for name in [*names, "door"]:
        used = [statistics.median(found[load.name][name]) for load in loads]
        bare_used = [statistics.median(found[load.name]["bare"]) for load in loads]
        row = [f"{own:.0f} ({own / base:.2f})" for own, base in zip(used, bare_used, strict=True)]
        if len(streams) == 2:
            first, second = streams
            more = loads[first].tokens - loads[second].tokens
            row.append(f"{(used[first] - used[second]) / more:.1f}")
        print(f"| {name} | {' | '.join(row)} |")


def main() -> None:
    """Print the tables of docs/door.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--parts", action="store_true", help="add part after part")
    parser.add_argument("--load", type=int, nargs="*", default=range(len(LOADS)), metavar="NUMBER")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    began = time.monotonic()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {os.cpu_count()} cores", end=", ")
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"command: {' '.join(['benchmarks/door.py', *sys.argv[1:]])}\n")
    loads = [LOADS[number] for number in options.load]
    found = measure(loads, options.rounds, options.at_once, options.parts)
    if options.parts:
        print_parts(loads, found)
    else:
        print_ratios(loads, found)
    print(f"\n{time.monotonic() - began:.0f} s; every token of every answer was counted")


def print_ratios(loads: list[Load], found: dict[str, dict[str, list[float]]]) -> None:
    """Print the door beside the bare one, and beside the one that keeps connections."""
    print("| answer | bare, us | door, us | door : bare | door : bare that keeps connections |")
    print("|---|---|---|---|---|")
    for load in loads:
        ways = found[load.name]
        kept, other, own = (ways[name] for name in ("bare, kept", "bare", "door"))
        first, second = (
            spread([late / early for early, late in zip(by, own, strict=True)])
            for by in (other, kept)
        )
        middle = (f"{statistics.median(one):.0f}" for one in (other, own))
        print(f"| {load.name} | {' | '.join([*middle, first, second])} |")


if __name__ == "__main__":
    main()
