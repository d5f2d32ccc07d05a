"""The metadata service of an instance, version 2 alone, as EC2's user guide describes it.

    python imds.py DIRECTORY [ADDRESS PORT]

It answers with the files of DIRECTORY below /latest/meta-data/ and 404 for what has none, such as
`spot/instance-action` before a notice. A token comes by PUT, with its time to live; without one,
every question is refused. Standard library only: it runs on hosts of a lab, too.
"""

from __future__ import annotations

import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOKEN, DATA = "/latest/api/token", "/latest/meta-data/"
LIFE, SHOWN = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
MOST_SECONDS = 21600


def server(
    directory: Path, address: str = "127.0.0.1", port: int = 0, log: list[str] | None = None
) -> ThreadingHTTPServer:
    """Return a server that is to be run; each answer is added to `log`."""
    until: dict[str, float] = {}
    seen = [] if log is None else log

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            life = self.headers.get(LIFE, "")
            if self.path != TOKEN or not life.isdigit() or not 0 < int(life) <= MOST_SECONDS:
                self._answer(400)
                return
            # As the real one refuses whoever asks through a proxy.
            if self.headers.get("X-Forwarded-For"):
                self._answer(403)
                return
            token = secrets.token_urlsafe(40)
            until[token] = time.monotonic() + int(life)
            self._answer(200, token)

        def do_GET(self) -> None:
            if until.get(self.headers.get(SHOWN, ""), 0.0) < time.monotonic():
                self._answer(401)
                return
            name = self.path.removeprefix(DATA)
            found = directory / name
            if self.path == name or ".." in name or not found.is_file():
                self._answer(404)
                return
            self._answer(200, found.read_text())

        def _answer(self, status: int, text: str = "") -> None:
            seen.append(f"{self.command} {self.path} {status}")
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing: `log` holds it all."""

    return ThreadingHTTPServer((address, port), Handler)


if __name__ == "__main__":
    server(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])).serve_forever()
