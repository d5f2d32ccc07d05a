"""A BitTorrent tracker (BEP 3, compact answers of BEP 23) for the hosts of one benchmark."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SECONDS = 2


class Announce(BaseHTTPRequestHandler):
    """Answers each announcement with everybody who announced before."""

    peers: set[bytes]

    def do_GET(self) -> None:
        """Note who asks, and say who else is there."""
        asked = parse_qs(urlsplit(self.path).query)
        port = int(asked["port"][0]).to_bytes(2, "big")
        me = ipaddress.IPv4Address(self.client_address[0]).packed + port
        self.peers.add(me)
        others = b"".join(sorted(self.peers - {me}))
        answer = b"d8:intervali%de12:min intervali%de5:peers%d:%se" % (
            SECONDS,
            SECONDS,
            len(others),
            others,
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def tracker(address: str) -> Iterator[str]:
    """Serve announcements at an address of this machine; yields the URL."""
    handler = type("Handler", (Announce,), {"peers": set()})
    server = ThreadingHTTPServer((address, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{address}:{server.server_port}/announce"
    finally:
        server.shutdown()
        server.server_close()
