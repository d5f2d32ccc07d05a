"""What every emulated API has in common: a server on loopback, as long as its block lasts."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

# Tests end one each: they wait for so long at most.
LOOK_SECONDS = 0.05


class Served:
    """Answers by a handler, at a port of its own."""

    def serve(self, handler: type[BaseHTTPRequestHandler]) -> None:
        """Take a port; who asks before the block begins waits."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK_SECONDS,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def origin(self) -> str:
        """Scheme, address and port."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"
