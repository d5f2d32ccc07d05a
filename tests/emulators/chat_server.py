"""A server that answers chat completions as vLLM 0.32 does, with faults on demand.

The answer to "say N words" has N tokens. What goes wrong with a prompt is said by its text in
`faults`: a list that each request takes one entry from.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Self

from aiohttp import web

MODEL, KEY = "echo", "k" * 32
DROP, CUT, STALL = "drop", "cut", "stall"
Fault = str | tuple[int, dict[str, str]] | dict[str, Any]


class ChatServer:
    """Serves on a port of its own choice, in a thread of its own; use it as a context."""

    def __init__(
        self,
        faults: dict[str, list[Fault]] | None = None,
        seconds_a_token: float = 0.0,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.faults = faults or {}
        self.asked: Counter[str] = Counter()
        self.arrived: list[float] = []
        self.bodies: list[dict[str, Any]] = []
        self.keep_bodies = True
        self.in_flight = self.most_in_flight = self.given_up = 0
        # Nothing is answered while this is not set.
        self.go_on = threading.Event()
        self.go_on.set()
        self._seconds = seconds_a_token
        self._port, self._tls = port, tls
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(120)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self._port}"

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._until_ended())
        self._loop.close()

    async def _until_ended(self) -> None:
        self._ended = asyncio.Event()
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/v1/chat/completions", self._completions)
        # As uvicorn does, a request ends when whoever asked is gone.
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", self._port, ssl_context=self._tls)
        await site.start()
        self._port = runner.addresses[0][1]
        self._started.set()
        await self._ended.wait()
        await runner.cleanup()

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        body = await request.json()
        asked = body["messages"][-1]["content"]
        self.asked[asked] += 1
        self.arrived.append(time.monotonic())
        if self.keep_bodies:
            self.bodies.append(body)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(request, body, asked)
        except (asyncio.CancelledError, ConnectionError):
            self.given_up += 1
            raise
        finally:
            self.in_flight -= 1

    async def _answer(
        self, request: web.Request, body: dict[str, Any], asked: str
    ) -> web.StreamResponse:
        left = self.faults.get(asked)
        fault = left.pop(0) if left else None
        if body["model"] != MODEL:
            return error(404, f"The model `{body['model']}` does not exist.")
        if isinstance(fault, tuple):
            status, headers = fault
            return error(status, f"refused with {status}", headers)
        if fault == DROP:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if fault == STALL:
            await asyncio.sleep(3600)
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)
        words = tokens(asked)
        if not body["stream"]:
            await asyncio.sleep(self._seconds * len(words))
            return web.json_response(whole(words, asked))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, event in enumerate(events(words, asked, body)):
            if fault == CUT and number == 2:
                assert request.transport is not None
                request.transport.close()
                return response
            if isinstance(fault, dict) and number == 2:
                event = json.dumps(fault)
            await response.write(f"data: {event}\n\n".encode())
            if number:
                await asyncio.sleep(self._seconds)
        return response


def tokens(asked: str) -> list[str]:
    """Return the tokens of the answer to a prompt."""
    words = asked.split()
    number = int(words[1]) if words[:1] == ["say"] else 3
    return [f"wörd{place} " for place in range(number)]


def usage(words: list[str], asked: str) -> dict[str, int]:
    told, said = len(asked.split()), len(words)
    return {"prompt_tokens": told, "completion_tokens": said, "total_tokens": told + said}


def whole(words: list[str], asked: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(words), "reasoning": None}
    if "think" in asked:
        message["reasoning_content"] = "hm, "
    return {
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage(words, asked),
    }


def events(words: list[str], asked: str, body: dict[str, Any]) -> Iterator[str]:
    """Yield the data of each event of a stream."""

    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return json.dumps(
            {"object": "chat.completion.chunk", "choices": [choice]}, ensure_ascii=False
        )

    yield chunk({"role": "assistant", "content": ""})
    if "think" in asked:
        yield chunk({"reasoning_content": "hm, "})
    for word in words:
        yield chunk({"content": word})
    yield chunk({}, "stop")
    if body.get("stream_options", {}).get("include_usage"):
        yield json.dumps({"choices": [], "usage": usage(words, asked)})
    yield "[DONE]"


def error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    content = {"error": {"message": message, "type": "Error", "param": None, "code": status}}
    return web.json_response(content, status=status, headers=headers)
