"""Pass files on to peers while they still arrive.

GET /SLUG/FILE?piece=N answers with frames: PIECE, its digest and its bytes; WAIT, about once a
second while the next one is not there yet; AGAIN, where what was sent was withdrawn; and an end
after the last piece, or where nobody is left who would bring the next one. Nobody without the
cluster's key gets more than a refusal, nor a thread.
"""

from __future__ import annotations

import io
import selectors
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPException, parse_headers
from http.server import BaseHTTPRequestHandler
from typing import IO, Any, Callable, Optional
from urllib.parse import parse_qs, unquote, urlsplit

from ...cluster.door import Door, Guest, NotAdmitted
from ...cluster.key import derived
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
# Of peers that hold the key. So many more may wait; a host that has fewer is served before others.
MOST_CONNECTIONS = 256
MOST_WAITING = 1024
BACKLOG = 4096
# Anybody may be refused any number of times: a log tells of it now and then.
TELL_SECONDS = 5.0
REFUSED = "HTTP/1.0 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Handler(BaseHTTPRequestHandler):
    """One request of a peer."""

    server: Any  # a Sender
    server_version = "vllm-ansible"
    sys_version = ""
    timeout = SEND_SECONDS

    def __init__(self, request: Any, client_address: Any, server: Sender, head: bytes) -> None:
        """Answer a request whose head was read, and whose sender holds the key."""
        self.head = head
        super().__init__(request, client_address, server)  # type: ignore[arg-type]

    def setup(self) -> None:
        """Read what was read already."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(self.head)

    def do_GET(self) -> None:
        """Send a file from a piece on."""
        asked = urlsplit(self.path)
        slug, _, name = asked.path.strip("/").partition("/")
        found: Optional[tuple[Shelf, File]] = self.server.find(unquote(slug), unquote(name))
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
                if file.length(number):  # an empty file is one empty piece
                    self.connection.sendfile(content, number * file.length(0), file.length(number))
                self.server.used = said = time.monotonic()
                number += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests that went well."""

    def log_error(self, format: str, *args: Any) -> None:
        """Say what was not found."""
        print(f"{self.client_address[0]}: {format % args}", flush=True)


class Sender:
    """The files of some models, for peers that hold the key."""

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
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._listener = socket.create_server(address, family=family, backlog=BACKLOG)
        self.server_address = self._listener.getsockname()
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._waiting: list[tuple[Guest, bytes]] = []
        self._refused: Counter[str] = Counter()
        self._told = 0.0
        self._end, self._over = threading.Event(), threading.Event()
        self._over.set()

    def find(self, slug: str, name: str) -> Optional[tuple[Shelf, File]]:
        """Return a file of a model and where its parts lie."""
        return self._files.get((slug, name))

    def serve_forever(self, poll_seconds: float = 0.5) -> None:
        """Let peers in until somebody calls shutdown."""
        self._over.clear()
        try:
            with selectors.DefaultSelector() as selector:
                door = Door(selector, self._judge, self._admit, turned_away=self._turned_away)
                door.watch(self._listener)
                while not self._end.is_set():
                    door.turn(poll_seconds)
                    self._tell()
                door.close()
        finally:
            self._over.set()

    def shutdown(self) -> None:
        """Let nobody in any more."""
        self._end.set()
        self._over.wait()

    def server_close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _judge(self, guest: Guest) -> Optional[bytes]:
        """Return the head of a request of somebody who holds the key; None while it comes."""
        head, end, _ = guest.said.partition(b"\r\n\r\n")
        if not end:
            return None
        lines = io.BytesIO(head + end)
        asked = lines.readline().split()
        if len(asked) != 3 or asked[0] != b"GET":
            raise NotAdmitted("no request", REFUSED.format(status="400 no request").encode())
        try:
            shown = parse_headers(lines).get("Authorization", "")
        except HTTPException as error:
            why = "400 no headers"
            raise NotAdmitted("no headers", REFUSED.format(status=why).encode()) from error
        why = refusal(self.key, asked[1].decode("latin-1"), shown)
        if why:
            raise NotAdmitted(why, REFUSED.format(status=f"401 {why}").encode())
        return head + end

    def _admit(self, guest: Guest, head: bytes) -> None:
        """Serve a peer, or let it wait for its turn."""
        self.used = time.monotonic()
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                guest.socket.close()
                return
            self._waiting.append((guest, head))
        self._go_on()

    def _go_on(self) -> None:
        """Serve who waits as far as there is room: first the host that is served least."""
        with self._lock:
            while self._waiting and sum(self._busy.values()) < MOST_CONNECTIONS:
                chosen = min(self._waiting, key=lambda one: self._busy[one[0].address])
                self._waiting.remove(chosen)
                self._busy[chosen[0].address] += 1
                threading.Thread(target=self._serve, args=chosen, daemon=True).start()

    def _serve(self, guest: Guest, head: bytes) -> None:
        """Serve one peer, then the next one."""
        try:
            with suppress(OSError):  # a peer may go at any time
                Handler(guest.socket, (guest.address, 0), self, head)
        except Exception:  # of one peer: the others go on
            traceback.print_exc()
        finally:
            with suppress(OSError):
                guest.socket.shutdown(socket.SHUT_WR)
            guest.socket.close()
            with self._lock:
                self._busy[guest.address] -= 1
            self._go_on()

    def _turned_away(self, why: str, guest: Guest) -> None:
        if len(self._refused) < MOST_WAITING:
            self._refused[f"{guest.address}: {why}"] += 1

    def _tell(self) -> None:
        """Say who was refused, a few lines now and then."""
        if not self._refused or time.monotonic() - self._told < TELL_SECONDS:
            return
        for who, count in self._refused.most_common(3):
            print(f"{who} ({count} times)", flush=True)
        self._refused.clear()
        self._told = time.monotonic()

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
