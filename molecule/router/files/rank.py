"""A rank as a router sees one: vLLM's paths, one token at once. Standard library only."""

from __future__ import annotations

import http.server
import json
import sys
from pathlib import Path

ADDRESS, PORT, KEY = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).read_text().strip()


class Rank(http.server.BaseHTTPRequestHandler):
    """Answers everybody at /health, and who has the key elsewhere."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer 200 to /health."""
        self._send(200 if self.path == "/health" else self._lets_in(), {})

    def do_POST(self) -> None:
        """Answer a completion of one token."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        choice = {
            "message": {"content": "Paris"},
            "logprobs": {"content": [{"logprob": -0.5}]},
            "finish_reason": "stop",
        }
        self._send(self._lets_in(), {"choices": [choice], "usage": {"completion_tokens": 1}})

    def _lets_in(self) -> int:
        return 200 if self.headers.get("Authorization") == f"Bearer {KEY}" else 401

    def _send(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.ThreadingHTTPServer((ADDRESS, PORT), Rank).serve_forever()
