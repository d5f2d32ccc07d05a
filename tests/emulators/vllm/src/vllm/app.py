"""Its HTTP behind the middleware: the key, the paths, and what each of them answers."""

import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any

import vllm
from vllm.answers import Model, Refused


class Application:
    """step: has all ranks take part, and raises where one of them is gone."""

    def __init__(self, model: Model, key: str, step: Callable[[], Awaitable[Any]]) -> None:
        self.model, self.key, self.step = model, key, step

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        try:
            status, body = await self.answer(scope, receive)
        except Refused as refused:
            status, body = refused.status, refused.body
        text = body if isinstance(body, str) else json.dumps(body)
        kind = b"text/plain" if isinstance(body, str) else b"application/json"
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(text.encode()))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def live(self, receive: Any, send: Any) -> None:
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    async def answer(self, scope: Any, receive: Any) -> tuple[int, Any]:
        method, path = scope["method"], scope["path"]
        if path.startswith("/v1") and not self.carries_key(scope["headers"]):
            return 401, {"error": "Unauthorized"}
        fixed = {
            ("GET", "/health"): "",
            ("GET", "/version"): {"version": vllm.__version__},
            ("GET", "/v1/models"): self.model.models(),
            ("GET", "/metrics"): self.model.metrics(),
        }
        if (method, path) in fixed:
            return 200, fixed[method, path]
        answers = {
            "/v1/chat/completions": self.model.chat,
            "/v1/completions": self.model.complete,
        }
        if method != "POST" or path not in answers:
            return 404, {"detail": "Not Found"}
        text = b""
        more = True
        while more:
            message = await receive()
            text, more = text + message.get("body", b""), message.get("more_body", False)
        reply = answers[path](json.loads(text))
        await self.step()
        return 200, reply

    def carries_key(self, headers: Any) -> bool:
        given = dict(headers).get(b"authorization", b"")
        return hmac.compare_digest(given, f"Bearer {self.key}".encode())
