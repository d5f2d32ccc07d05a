"""An engine that streams at a known pace, with the load-test page before it in one origin."""

from __future__ import annotations

import json
import re
import threading
import time
from base64 import b64encode
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

ROLE = Path(__file__).parents[2] / "roles/load_page"
KEY = "key-of-the-stand-in-0123456789abcdef"
# What opens the figures of a cluster is made of that key.
OBSERVER = b64encode(b"observe:" + sha256(f"observe {KEY}".encode()).hexdigest().encode()).decode()
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# Of more than one byte, so that a piece can end inside a letter.
WORD = "naïve… "
# What the prompt is beside its words: the template of a chat.
TEMPLATE_TOKENS = 9


def policy() -> str:
    """Return the Content-Security-Policy that the role gives its page."""
    found = re.search(
        r'Content-Security-Policy "([^"]+)"', (ROLE / "templates/nginx.conf.j2").read_text()
    )
    assert found is not None
    return found[1]


class Handler(BaseHTTPRequestHandler):
    """What nginx and the engine do together."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_GET(self) -> None:
        if self.path in ("/engines.json", "/v1/models"):
            if not self._let_in():
                return
            names = [{"name": name, "model": f"model-{name}"} for name in ("chat", "other")]
            self._answer(200, "application/json", json.dumps(names).encode())
            return
        if self.path == "/cluster.json" and self.engine.cluster:
            if self._let_in(f"Basic {OBSERVER}"):
                self._answer(200, "application/json", json.dumps(self.engine.cluster).encode())
            return
        path = ROLE / "files/page" / (self.path.strip("/") or "index.html")
        if path.is_file():
            self._answer(200, TYPES[path.suffix], path.read_bytes())
        else:
            self._answer(404, "text/html", b"<html><h1>404 Not Found</h1></html>")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._let_in():
            return
        prompt = asked.get("prompt") or asked["messages"][0]["content"]
        with self.engine.lock:
            self.engine.asked.append({**asked, "path": self.path})
            number = len(self.engine.asked)
        if number in self.engine.refused:
            body = {"error": {"message": '=too busy, "please" wait', "code": 503}}
            self._answer(503, "application/json", json.dumps(body).encode())
            return
        try:
            self._stream(asked["max_tokens"], len(prompt.split()) + TEMPLATE_TOKENS, number)
        except ConnectionError:
            with self.engine.lock:
                self.engine.given_up += 1

    def _let_in(self, wanted: str = f"Bearer {KEY}") -> bool:
        if self.headers.get("Authorization") == wanted:
            return True
        self._answer(401, "application/json", b'{"error": "Unauthorized"}')
        return False

    def _stream(self, tokens: int, prompt_tokens: int, number: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        engine = self.engine
        time.sleep(engine.first_seconds)
        for done in range(1, tokens + 1):
            usage = {"prompt_tokens": prompt_tokens, "completion_tokens": done}
            self._event({"choices": [{"delta": {"content": engine.word}}], "usage": usage})
            if number in engine.cut and done == 2:
                return
            if number in engine.garbled and done == 2:
                self.wfile.write(b"data: {\r\n\r\n")
            if done < tokens:
                time.sleep(engine.gap_seconds)
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\r\n\r\n")

    def _event(self, chunk: dict[str, Any]) -> None:
        """Send one event in two pieces that end in the middle of a letter where there is one."""
        event = f"data: {json.dumps(chunk, ensure_ascii=False)}\r\n\r\n".encode()
        middle = event.find("…".encode()) + 1 or len(event) - 3
        for piece in (event[:middle], event[middle:]):
            self.wfile.write(piece)
            self.wfile.flush()

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", policy()),
            ("Cache-Control", "no-cache"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Ends although a stream goes on; a browser that stopped listening is no error."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass


class Engine:
    """The server; its pace and its faults can be changed at any time.

    refused, cut and garbled: numbers of requests, from 1, that get status 503, end after two
    tokens, or go on after what is no JSON. given_up: answers that nobody read to their end.
    """

    def __init__(self) -> None:
        self.first_seconds, self.gap_seconds = 0.1, 0.02
        self.refused: set[int] = set()
        self.cut: set[int] = set()
        self.garbled: set[int] = set()
        self.given_up = 0
        self.word = WORD
        # What the stage observe has written, where the cluster is observed.
        self.cluster: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        handler = type("OfOneEngine", (Handler,), {"engine": self})
        self._server = Server(("127.0.0.1", 0), handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Engine:
        # Looked at so often, an end costs a test next to nothing.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
