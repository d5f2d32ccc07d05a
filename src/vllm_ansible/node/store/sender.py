"""Pass files on to peers while they still arrive.

GET /SLUG/FILE?piece=N answers with frames: PIECE, its digest and its bytes; WAIT, about once a
second while the next one is not there yet; AGAIN, where what was sent was withdrawn; and an end
after the last piece, or where nobody is left who would bring the next one. Nobody without the
cluster's key gets more than a refusal.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler
from typing import IO, Any, Callable, Optional
from urllib.parse import parse_qs, unquote, urlsplit

from ..cluster_key import derived
from .manifest import File, Manifest
from .shelf import DIGEST_BYTES, Shelf
from .signing import DOMAIN, refusal

PIECE, WAIT, AGAIN = b"P", b"W", b"A"
# How long to wait for the next piece before looking again: on a slow line longer each time, so that
# many streams that wait cost little.
LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.005, 0.05
WAIT_SECONDS = 1.0
# A peer that takes nothing for so long is gone.
SEND_SECONDS = 60.0
MOST_CONNECTIONS = 256


class Handler(BaseHTTPRequestHandler):
    """One request of a peer."""

    server: Sender
    server_version = "vllm-ansible"
    sys_version = ""
    timeout = SEND_SECONDS

    def do_GET(self) -> None:
        """Send a file from a piece on."""
        self.server.used = time.monotonic()
        why = refusal(self.server.key, self.path, self.headers.get("Authorization", ""))
        if why:
            self.send_error(401, why)
            return
        asked = urlsplit(self.path)
        slug, _, name = asked.path.strip("/").partition("/")
        found = self.server.find(unquote(slug), unquote(name))
        first = parse_qs(asked.query).get("piece", ["0"])[0]
        if found is None or not first.isdigit() or int(first) >= found[1].pieces:
            self.send_error(404, "no such file, or no such piece")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        with suppress(OSError):
            self.stream(*found, int(first))

    def stream(self, shelf: Shelf, file: File, first: int) -> None:
        """Send piece after piece as they come."""
        number, most, proofs = first, 0, shelf.proofs(file)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said, pause = time.monotonic(), LOOK_SECONDS
        with ExitStack() as opened:
            content: Optional[IO[bytes]] = None
            while number < file.pieces:
                ready = proofs.count()
                if ready < most:
                    self.connection.sendall(AGAIN)
                    return
                most = ready
                if ready <= number:
                    if time.monotonic() - said > WAIT_SECONDS:
                        if not shelf.tended():
                            return
                        self.connection.sendall(WAIT)
                        self.server.used = said = time.monotonic()
                    time.sleep(pause)
                    pause = min(2 * pause, LONGEST_LOOK_SECONDS)
                    continue
                pause = LOOK_SECONDS
                content = content or opened.enter_context(open(shelf.source(file), "rb"))
                digest = proofs.read(number)
                if len(digest) < DIGEST_BYTES:  # withdrawn since it was counted
                    continue
                self.connection.sendall(PIECE + digest)
                # By the kernel, without a copy in this process.
                self.connection.sendfile(content, number * file.length(0), file.length(number))
                self.server.used = said = time.monotonic()
                number += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests that went well."""

    def log_error(self, format: str, *args: Any) -> None:
        """Say who was refused."""
        print(f"{self.client_address[0]}: {format % args}", flush=True)


class Sender(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The files of some models, for peers that hold the key."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(
        self, address: tuple[str, int], key: bytes, shelves: Mapping[str, tuple[Shelf, Manifest]]
    ) -> None:
        """Listen on the data plane."""
        self.key, self.used = key, time.monotonic()
        self._files = {
            (slug, file.name): (shelf, file)
            for slug, (shelf, manifest) in shelves.items()
            for file in manifest.files
        }
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)

    def find(self, slug: str, name: str) -> Optional[tuple[Shelf, File]]:
        """Return a file of a model and where its parts lie."""
        return self._files.get((slug, name))

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one peer; more than there is room for wait."""
        with self._room:
            super().process_request_thread(request, client_address)

    def serve(self, idle_seconds: float) -> None:
        """Serve until nobody has asked for so long."""
        worker = threading.Thread(target=self.serve_forever, daemon=True)
        worker.start()
        while time.monotonic() - self.used < idle_seconds:
            time.sleep(0.5)
        self.shutdown()
        self.server_close()


def work(
    address: tuple[str, int],
    secret_file: str,
    shelves: Mapping[str, tuple[Shelf, Manifest]],
    idle_seconds: float,
) -> Callable[[Callable[..., None]], Any]:
    """Return the background task that passes files on."""

    key = derived(secret_file, DOMAIN)

    def run(report: Callable[..., None]) -> dict[str, Any]:
        sender = Sender(address, key, shelves)
        report(None, None, "", f"passing weights on at {address[0]}:{address[1]}")
        sender.serve(idle_seconds)
        return {}

    return run
