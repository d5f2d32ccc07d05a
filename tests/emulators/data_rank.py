"""Data ranks as a router sees them: vLLM's paths and counters, with a pace and a queue of its own.

    python data_rank.py --ports 8001,8002 --step 0.02 --slots 4 [--lockstep]

One process may be several ranks; in lockstep none computes a token unless all have a request, as
the ranks of vLLM's first engine. `/told` lists the requests that came, `/set` changes the pace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from typing import Any

from aiohttp import web

KEY = "rank-key"


class Group:
    """The ranks of one process."""

    def __init__(self, lockstep: bool) -> None:
        self.lockstep = lockstep
        self.ranks: list[Rank] = []

    def may_step(self) -> bool:
        return not self.lockstep or all(rank.running for rank in self.ranks)


class Rank:
    """One rank: `slots` requests at a time, `step` seconds a token."""

    def __init__(self, group: Group, step: float, slots: int, key: str) -> None:
        self.group, self.step, self.key = group, step, key
        self.slots = asyncio.Semaphore(slots)
        self.hung = False
        self.running = self.waiting = self.tokens = self.given_up = 0
        self.requests: list[dict[str, Any]] = []

    def application(self) -> web.Application:
        made = web.Application()
        made.router.add_get("/health", self.health)
        made.router.add_get("/metrics", self.metrics)
        made.router.add_get("/told", self.told)
        made.router.add_post("/set", self.set)
        made.router.add_get("/v1/models", self.models)
        made.router.add_post("/v1/completions", self.complete)
        made.router.add_post("/v1/chat/completions", self.complete)
        return made

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]}, status=self.lets_in(request))

    async def metrics(self, _: web.Request) -> web.Response:
        name, labels = "vllm:generation_tokens_total", '{engine="0",model_name="m"}'
        text = f"# TYPE {name} counter\n{name}{labels} {float(self.tokens)}\n"
        return web.Response(text=text)

    async def told(self, _: web.Request) -> web.Response:
        return web.json_response({"requests": self.requests, "given_up": self.given_up})

    async def set(self, request: web.Request) -> web.Response:
        for name, value in (await request.json()).items():
            setattr(self, name, value)
        return web.Response()

    def lets_in(self, request: web.Request) -> int:
        return 200 if request.headers.get("Authorization") == f"Bearer {self.key}" else 401

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        name = request.headers.get("X-Request-Id", "")
        self.requests.append({"id": name, "user": body.get("user", "")})
        if self.lets_in(request) != 200:
            return web.json_response({"error": "Unauthorized"}, status=401)
        self.waiting += 1
        try:
            async with self.slots:
                self.running += 1
                try:
                    return await self.answer(request, body)
                finally:
                    self.running -= 1
        except (asyncio.CancelledError, ConnectionError):
            self.given_up += 1
            raise
        finally:
            self.waiting -= 1

    async def token(self) -> None:
        await asyncio.sleep(self.step)
        while self.hung or not self.group.may_step():
            await asyncio.sleep(0.002)
        self.tokens += 1

    async def answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        number = int(body["max_tokens"])
        if not body.get("stream"):
            for _ in range(number):
                await self.token()
            words = "Paris " * number
            choice = {
                "text": words,
                "message": {"content": words},
                "logprobs": {"content": [{"logprob": -0.5}]},
                "finish_reason": "stop",
            }
            return web.json_response({"choices": [choice], "usage": {"completion_tokens": number}})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for place in range(number):
            await self.token()
            await response.write(f"data: {json.dumps({'n': place})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response


async def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ports", required=True)
    parser.add_argument("--step", type=float, default=0.01)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--lockstep", action="store_true")
    parser.add_argument("--key", default=KEY)
    told = parser.parse_args()
    group = Group(told.lockstep)
    for port in told.ports.split(","):
        rank = Rank(group, told.step, told.slots, told.key)
        group.ranks.append(rank)
        # As uvicorn does, a request ends when whoever asked is gone.
        runner = web.AppRunner(rank.application(), handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", int(port), backlog=1024).start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print(f"{os.getpid()} serves", flush=True)
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
