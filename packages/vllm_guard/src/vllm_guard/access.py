"""Ask for the API key wherever vLLM answers; vLLM itself guards some of its paths only."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware

# What load balancers and Prometheus read; none of it computes anything.
OPEN = frozenset({"/health", "/metrics", "/ping"})
READS = frozenset({"GET", "HEAD"})


def read_key() -> str:
    """Return the key from the YAML file that holds nothing else."""
    name, _, key = Path(os.environ["ENGINE_KEY_FILE"]).read_text().partition(":")
    if name.strip() != "api-key" or not key.strip():
        raise ValueError(f"{os.environ['ENGINE_KEY_FILE']} holds no line `api-key: ...`")
    return key.strip()


class Guard(AuthenticationMiddleware):
    """vLLM's own check of a key, for every path but the open ones."""

    def __init__(self, app: Any) -> None:
        super().__init__(app, [read_key()])

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        """Let through what is open or carries the key."""
        is_request = scope["type"] in ("http", "websocket")
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        method = scope.get("method")
        # A browser's question whether it may ask carries no key; vLLM answers it without one, too.
        is_open = method == "OPTIONS" or (path in OPEN and method in READS)
        if is_request and not is_open and not self.verify_token(Headers(scope=scope)):
            response = JSONResponse({"error": "Unauthorized"}, status_code=401)
            return response(scope, receive, send)
        return self.app(scope, receive, send)
