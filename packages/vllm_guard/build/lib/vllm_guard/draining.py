"""Finish what was asked before a server ends, whatever else of it takes the signal to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
# What the last answer has for its way: a connection's own buffer goes with the process.
LAST_ANSWER_SECONDS = 1.0
BODY = b'{"error": "this server is about to end and takes no more requests"}'


class Draining:
    """From SIGUSR1 on refuse requests with 503; with none left, let this process ask itself to end.

    SIGTERM alone does not do for this: over Ray, vLLM's engine hears of it at the same time and
    drops what it has. Ready is who handles the signal: where it is not caught, nobody here counts.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._pending = 0
        self._draining = False
        # A server of several processes has them ended by the one that a supervisor knows.
        with contextlib.suppress(ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._begin)

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Count a request while it is answered, or refuse it."""
        if scope["type"] not in ("http", "websocket") or scope.get("path") == "/metrics":
            await self._app(scope, receive, send)
        elif self._draining:
            await _refuse(scope["type"], send)
        else:
            self._pending += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._pending -= 1
                self._end_with_the_last()

    def _begin(self) -> None:
        if not self._draining:
            self._draining = True
            self._end_with_the_last()

    def _end_with_the_last(self) -> None:
        if self._draining and not self._pending:
            loop = asyncio.get_running_loop()
            loop.call_later(LAST_ANSWER_SECONDS, os.kill, os.getpid(), signal.SIGTERM)


async def _refuse(kind: str, send: Send) -> None:
    """Answer in the way of a server that goes: balancers and clients look for another one."""
    if kind == "websocket":
        await send({"type": "websocket.close", "code": 1012})
        return
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(BODY)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})
