"""Stands in for Dynamo's frontend before engines with prefix caches, in one process.

What it serves is as Dynamo 1.6.1 and vLLM 0.32 were seen to serve it: `/health` with instances,
`/metrics` with applied events, and each engine's own counter of tokens hit. A page that is not
known is 404, a request without the key 401.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "k-front"
BLOCK = 16


@dataclass
class Engine:
    """What one engine has in its cache, by the words of each block from the beginning."""

    blocks: set[str] = field(default_factory=set)
    hits: int = 0


class Front:
    """Frontend and engines, until the end of a with block."""

    def __init__(self, engines: int = 2, events: bool = True, stale: int = 0) -> None:
        self.engines = [Engine() for _ in range(engines)]
        self.events, self.stale = events, stale
        self.applied = self.asked = 0
        # Where the first engine's sidecar takes requests; the others follow.
        self.requests = 9000
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self.servers = [f"{self.url}/engine/{number}" for number in range(engines)]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, words: list[str]) -> None:
        """Send a prompt to the engine with most of it in its cache, if any event has told."""
        count = len(words) // BLOCK
        blocks = [" ".join(words[: (number + 1) * BLOCK]) for number in range(count)]
        chosen = self.engines[self.asked % len(self.engines)]
        if self.events:
            most = max(self.engines, key=lambda one: len(one.blocks & set(blocks)))
            chosen = most if most.blocks & set(blocks) else chosen
            self.applied += len(set(blocks) - chosen.blocks)
        chosen.hits += BLOCK * len(chosen.blocks & set(blocks))
        chosen.blocks |= set(blocks)
        self.asked += 1

    def page(self, path: str) -> str | None:
        if path == "/health":
            ports = [*range(len(self.engines)), *range(self.stale)]
            rows = [("generate", port) for port in ports] + [("worker_kv_query_source_1", 0)]
            return json.dumps(
                {
                    "status": "healthy",
                    "instances": [
                        {
                            "endpoint": name,
                            "transport": {"tcp": f"127.0.0.1:{self.requests + port}/a/b"},
                        }
                        for name, port in rows
                    ],
                }
            )
        if path == "/metrics":
            applied = 'dynamo_component_kv_cache_events_applied{event_type="%s",status="%s"} %d'
            return "\n".join(
                [
                    "# TYPE dynamo_component_kv_cache_events_applied counter",
                    applied % ("stored", "ok", self.applied),
                    applied % ("stored", "block_not_found", 7),
                    applied % ("removed", "ok", 7),
                    f'dynamo_frontend_model_kv_cache_block_size{{model="m"}} {BLOCK}',
                ]
            )
        for number, engine in enumerate(self.engines):
            if path == f"/engine/{number}/metrics":
                labels = f'{{engine="0",model_name="{number}"}}'
                return f"vllm:prefix_cache_hits_total{labels} {float(engine.hits)}"
        return None

    def _handler(front) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = front.page(self.path)
                self.say(404 if page is None else 200, page or "")

            def do_POST(self) -> None:
                body: dict[str, Any] = json.loads(
                    self.rfile.read(int(self.headers["Content-Length"]))
                )
                if self.headers.get("Authorization") != f"Bearer {KEY}":
                    self.say(401, "no key")
                    return
                words = body["messages"][0]["content"].split()
                front.answer(words)
                self.say(200, json.dumps({"usage": {"prompt_tokens": len(words)}}))

            def say(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
