"""Ask for the API key wherever vLLM answers; vLLM itself guards some of its paths only.

It imports nothing of vLLM, whose own check of a key has moved between releases.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

# What load balancers and Prometheus read; none of it computes anything.
OPEN = frozenset({"/health", "/metrics", "/ping"})
READS = frozenset({"GET", "HEAD"})


def read_key() -> str:
    """Return the key from the YAML file that holds nothing else."""
    name, _, key = Path(os.environ["ENGINE_KEY_FILE"]).read_text().partition(":")
    if name.strip() != "api-key" or not key.strip():
        raise ValueError(f"{os.environ['ENGINE_KEY_FILE']} holds no line `api-key: ...`")
    return key.strip()


class Guard:
    """A check of the key for every path but the open ones, before vLLM sees a request."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.key = read_key().encode()

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """Let through what is open or carries the key."""
        is_request = scope["type"] in ("http", "websocket")
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        method = scope.get("method")
        # A browser's question whether it may ask carries no key; vLLM answers it without one, too.
        is_open = method == "OPTIONS" or (path in OPEN and method in READS)
        if is_request and not is_open and not self.carries_key(scope.get("headers", ())):
            return refuse(scope["type"], send)
        answer: Awaitable[None] = self.app(scope, receive, send)
        return answer

    def carries_key(self, headers: Any) -> bool:
        """Tell whether a request says `Authorization: Bearer KEY`; every byte of it is compared."""
        given = next((value for name, value in headers if name.lower() == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, self.key)


async def refuse(kind: str, send: Any) -> None:
    """Answer that the key is missing; a websocket is closed before it is open."""
    if kind == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "Unauthorized"})
        return
    body = json.dumps({"error": "Unauthorized"}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
