"""An engine that answers as vLLM does where tokens are counted, whole and in streams.

What it does differently is said by further members of a request: `pause` (seconds between the
pieces of a stream), `pieces` (cut what it sends every so many bytes), `extra` (so many bytes behind
the usage), `hold` (seconds before an answer that is not a stream), `waits` (a stream goes on once
`finish` is set), `cut` (a stream ends that many events early), `burst` (so many of the first events
come in one piece).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import Any, Self

from aiohttp import web

KEY = "key-of-the-engine"
PROMPT_TOKENS = 7


class MeteredEngine:
    """Serves on a port of its own choice, in a thread of its own; use it as a context."""

    def __init__(self, model: str = "m", port: int = 0, key: str = KEY) -> None:
        self.model, self.port, self.key = model, port, key
        self.bodies: list[dict[str, Any]] = []
        self.lengths: list[int] = []
        self.keys: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.given_up = 0
        # Events of all its streams.
        self.pieces = 0
        # Streams that say `waits` end no earlier.
        self.finish = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(120)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Serve no more."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._until_ended())
        self._loop.close()

    async def _until_ended(self) -> None:
        self._ended = asyncio.Event()
        application = web.Application(client_max_size=1 << 26)
        application.router.add_get("/health", self._health)
        for path in ("chat/completions", "completions", "embeddings", "responses", "messages"):
            application.router.add_post(f"/v1/{path}", self._answer)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        self.port = runner.addresses[0][1]
        self._started.set()
        await self._ended.wait()
        await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        self.bodies.append(body)
        self.lengths.append(len(raw))
        self.headers.append(dict(request.headers))
        self.keys.append(request.headers.get("Authorization", ""))
        if self.keys[-1] != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if body["model"] != self.model:
            return web.json_response({"error": {"code": 404}}, status=404)
        try:
            if body.get("stream"):
                return await self._stream(request, body)
            await asyncio.sleep(body.get("hold", 0))
            other = OTHERS.get(request.path)
            return web.json_response(other(body)[0] if other else self._whole(body))
        except (asyncio.CancelledError, ConnectionError):
            self.given_up += 1
            raise

    def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        number = int(body.get("max_tokens", 5))
        text = 'told "usage":{"total_tokens":9} ' * number
        found = {
            "id": "chatcmpl-1",
            "model": self.model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
            "usage": {**used(number), "prompt_tokens_details": None},
        }
        # As a connector gives back what it was asked with.
        echo = (
            {"kv_transfer_params": body["kv_transfer_params"]}
            if "kv_transfer_params" in body
            else {}
        )
        return {**found, **echo, "prompt_logprobs": "x" * int(body.get("extra", 0))}

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        size = int(body.get("pieces", 1 << 30))
        other = OTHERS.get(request.path)
        made = [f"data: {event}\n\n" for event in events(body)] if not other else other(body)[1]
        whole = made[: len(made) - int(body.get("cut", 0))]
        burst = int(body.get("burst", 1))
        for text in ("".join(whole[:burst]), *whole[burst:]):
            sent = text.encode()
            self.pieces += 1
            for start in range(0, len(sent), size):
                await response.write(sent[start : start + size])
                await asyncio.sleep(0.001 if len(sent) > size else 0)
            await asyncio.sleep(body.get("pause", 0))
            while body.get("waits") and not self.finish.is_set():
                await asyncio.sleep(0.02)
        return response


def told(kind: str, **more: Any) -> str:
    """Return an event that is named, as those of responses and messages are."""
    text = json.dumps({"type": kind, **more}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {text}\n\n"


def responses(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an answer of /v1/responses as vLLM 0.32.0 gave it, whole and as a stream."""
    number = int(body.get("max_output_tokens", 5))
    usage = {
        "input_tokens": PROMPT_TOKENS,
        "input_tokens_details": {"cached_tokens": 4, "input_tokens_per_turn": []},
        "output_tokens": number,
        "output_tokens_details": {"reasoning_tokens": 0, "output_tokens_per_turn": []},
        "total_tokens": PROMPT_TOKENS + number,
    }
    # Of a tool that its client describes it gives the description back.
    whole = {
        "id": "resp_1",
        "tools": body.get("tools", []),
        "usage": usage,
        "user": body.get("user"),
    }
    begun = {**whole, "usage": None}
    pieces = [told("response.output_text.delta", delta=f"wörd{one}") for one in range(number)]
    return whole, [
        told("response.created", response=begun),
        told("response.output_item.added", item={"type": "message", "content": []}),
        *pieces,
        told("response.output_text.done", text='"usage":{"input_tokens":99}'),
        told("response.completed", response=whole),
    ]


def messages(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return an answer of /v1/messages as vLLM 0.32.0 gave it, whole and as a stream."""
    number = int(body.get("max_tokens", 5))
    # What was cached is no part of the input.
    usage = {"input_tokens": PROMPT_TOKENS - 4, "cache_read_input_tokens": 4}
    # A tool that the model calls has what its client told it.
    tools = [{"type": "tool_use", "input": one} for one in body.get("tools", [])]
    begun = {"id": "chatcmpl-1", "content": tools, "usage": {**usage, "output_tokens": 0}}
    pieces = [
        told("content_block_delta", delta={"type": "text_delta", "text": f"wörd{one}"}, index=0)
        for one in range(number)
    ]
    ended = {**usage, "output_tokens": number}
    return {**begun, "usage": ended}, [
        told("message_start", message=begun),
        told("content_block_start", content_block={"type": "text", "text": ""}, index=0),
        *pieces,
        told("content_block_delta", delta={"type": "signature_delta", "signature": "x"}, index=0),
        told("content_block_stop", index=0),
        told("message_delta", delta={"stop_reason": "max_tokens"}, usage=ended),
        told("message_stop"),
    ]


OTHERS = {"/v1/responses": responses, "/v1/messages": messages}


def used(number: int, prompts: int = 1) -> dict[str, int]:
    """Return the usage of an answer of so many tokens."""
    total = PROMPT_TOKENS * prompts + number
    return {
        "prompt_tokens": PROMPT_TOKENS * prompts,
        "total_tokens": total,
        "completion_tokens": number,
    }


def events(body: dict[str, Any]) -> list[str]:
    """Return the data of all events of a stream, as its options ask for them.

    An event has one choice of one prompt, and the usage of that; the last one has that of all.
    """
    options = body.get("stream_options") or {}
    usage = bool(options.get("include_usage"))
    each = usage and bool(options.get("continuous_usage_stats"))
    prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
    choices = prompts * int(body.get("n") or 1)
    most = int(body.get("max_tokens", 5))
    found = []
    for number, index in itertools.product(range(most + 1), range(choices)):
        content = f'wörd{number} "choices":[] "usage":{{"total_tokens":9}}' if number else ""
        choice = {"index": index, "delta": {"content": content}, "finish_reason": None}
        event = {"id": "chatcmpl-1", "choices": [choice]}
        found.append({**event, **({"usage": used(number)} if each else {})})
    if usage:
        last = used(most * choices, prompts)
        found.append({"id": "chatcmpl-1", "choices": [], "usage": last})
    return [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in found] + [
        "[DONE]"
    ]
