"""Stands in for a prefill engine, a decode engine and what asks both, in one process.

What it serves is as vLLM 0.32 with NixlConnector was seen to serve it: `kv_transfer_params` in the
answer of prefill, and the decode engine's own counters. What is fetched is counted only where the
params of that very prompt come. A page that is not known is 404, a request without the key 401.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "k-pair"
BYTES_A_TOKEN = 46080


class Pair:
    """Both engines and their front, until the end of a with block.

    keeps: whether prefill keeps what it computed. moves: whether decode can fetch it. asks_prefill:
    whether the front asks prefill first. beside: whether another client is answered from the cache
    of decode just then, and what is moved is counted one look later. sized: whether bytes are, too.
    """

    def __init__(
        self,
        keeps: bool = True,
        moves: bool = True,
        asks_prefill: bool = True,
        beside: bool = False,
        sized: bool = True,
    ) -> None:
        self.keeps, self.moves, self.asks_prefill = keeps, moves, asks_prefill
        self.beside, self.cached, self.sized = beside, 0, sized
        self.later: tuple[int, int] | None = None
        self.kept: dict[str, str] = {}
        self.remote = self.computed = self.bytes = self.failed = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.prefill, self.decode = f"{self.url}/prefill", f"{self.url}/decode"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def prefilled(self, body: dict[str, Any]) -> dict[str, Any]:
        """Compute a prompt; keep it where that is asked for."""
        params = None
        if self.keeps and (body.get("kv_transfer_params") or {}).get("do_remote_decode"):
            number = f"cmpl-{len(self.kept)}"
            self.kept[number] = body["prompt"]
            params = {"do_remote_prefill": True, "remote_request_id": number}
        return answer(body, params)

    def decoded(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Fetch what was kept of a prompt, or compute it where nothing says that it was."""
        params, count = body.get("kv_transfer_params") or {}, len(body["prompt"].split())
        if not params.get("do_remote_prefill"):
            self.computed += count
            return 200, answer(body, None)
        if not self.moves or self.kept.pop(params["remote_request_id"], "") != body["prompt"]:
            self.failed += 1
            return 500, {"error": {"message": "KV load failed"}}
        if self.beside:
            self.cached += count + 1
            self.later = (self.remote, self.bytes)
        self.remote += count
        self.bytes += BYTES_A_TOKEN * count * self.sized
        return 200, answer(body, None)

    def fronted(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Ask prefill, then decode."""
        if not self.asks_prefill:
            return self.decoded(body)
        first = self.prefilled({**body, "kv_transfer_params": {"do_remote_decode": True}})
        return self.decoded({**body, "kv_transfer_params": first.get("kv_transfer_params")})

    @property
    def figures(self) -> str:
        """The decode engine's counters."""
        labels = 'engine="0",model_name="m"'
        remote, moved = self.later or (self.remote, self.bytes)
        self.later = None
        source = f"vllm:prompt_tokens_by_source_total{{{labels},source="
        return "\n".join(
            [
                "# TYPE vllm:prompt_tokens_by_source_total counter",
                f'{source}"local_compute"}} {float(self.computed)}',
                f'{source}"local_cache_hit"}} {float(self.cached)}',
                f'{source}"external_kv_transfer"}} {float(remote)}',
                f"vllm:nixl_bytes_transferred_sum{{{labels}}} {float(moved)}",
                f"vllm:nixl_num_failed_transfers_total{{{labels}}} {float(self.failed)}",
            ]
        )

    def _handler(pair) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path == "/decode/metrics"
                self.say(200 if known else 404, pair.figures if known else "")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.headers.get("Authorization") != f"Bearer {KEY}":
                    self.say(401, "no key")
                    return
                status, found = 404, {}
                if self.path == "/prefill/v1/completions":
                    status, found = 200, pair.prefilled(body)
                elif self.path == "/decode/v1/completions":
                    status, found = pair.decoded(body)
                elif self.path == "/v1/completions":
                    status, found = pair.fronted(body)
                self.say(status, json.dumps(found))

            def say(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


def answer(body: dict[str, Any], params: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a server answers to a completion."""
    return {
        "choices": [{"text": " x"}],
        "usage": {"prompt_tokens": len(body["prompt"].split())},
        "kv_transfer_params": params,
    }
