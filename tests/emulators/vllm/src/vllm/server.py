"""The HTTP of `vllm serve`: uvicorn, the middleware that the command names, the key, the paths."""

import asyncio
import hmac
import importlib
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import ray
import uvicorn

import vllm
from vllm import ranks
from vllm.answers import Model, Refused
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.logger import log


class Application:
    def __init__(self, model: Model, key: str, workers: list[Any]) -> None:
        self.model, self.key, self.workers = model, key, workers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        try:
            status, body = 200, await self.answer(scope, receive)
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

    async def answer(self, scope: Any, receive: Any) -> Any:
        method, path = scope["method"], scope["path"]
        if path.startswith("/v1") and not self.carries_key(scope["headers"]):
            raise Refused(401, "Unauthorized", "Unauthorized")
        fixed = {
            ("GET", "/health"): "",
            ("GET", "/version"): {"version": vllm.__version__},
            ("GET", "/v1/models"): self.model.models(),
            ("GET", "/metrics"): f'vllm:request_success_total{{engine="0"}} {self.model.count}\n',
        }
        if (method, path) in fixed:
            return fixed[method, path]
        answers = {
            "/v1/chat/completions": self.model.chat,
            "/v1/completions": self.model.complete,
        }
        if method != "POST" or path not in answers:
            raise Refused(404, "NotFoundError", "Not Found")
        text = b""
        more = True
        while more:
            message = await receive()
            text, more = text + message.get("body", b""), message.get("more_body", False)
        reply = answers[path](json.loads(text))
        # All ranks take part in each answer: without one of them there is none.
        await asyncio.gather(*[worker.step.remote() for worker in self.workers])
        return reply

    def carries_key(self, headers: Any) -> bool:
        given = dict(headers).get(b"authorization", b"")
        return hmac.compare_digest(given, f"Bearer {self.key}".encode())


def main(args: Namespace) -> None:
    """Start as vLLM does, and serve until SIGTERM."""
    log(f"vLLM API server version {vllm.__version__}")
    config = AsyncEngineArgs.from_cli_args(args).create_model_config()
    name, _, key = Path(args.config).read_text().strip().partition(": ")
    assert name == "api-key" and key, args.config
    workers = ranks.start(args)
    log("init engine (profile, create kv cache, warmup model) took 0.01 s")
    length = args.max_model_len or int(config["max_position_embeddings"])
    model = Model(args.served_model_name or args.model_tag, args.model_tag, length)
    asyncio.run(serve(args, Application(model, key, workers)))
    ray.shutdown()


async def serve(args: Namespace, application: Any) -> None:
    for one in args.middleware:
        module, _, name = one.rpartition(".")
        application = getattr(importlib.import_module(module), name)(application)
    log(f"Starting vLLM server on http://{args.host}:{args.port}")
    config = uvicorn.Config(application, host=args.host, port=args.port, log_level="info")
    await uvicorn.Server(config).serve()
