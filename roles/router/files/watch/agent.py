"""Answer HAProxy's agent checks: it names a rank and is told whether that one is up."""

from __future__ import annotations

import socketserver
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from probing import Probe


class Agent(socketserver.ThreadingTCPServer):
    """Listens on this host's own loopback; nothing secret is asked or told."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, probes: Mapping[str, Probe]) -> None:
        self.probes = probes
        super().__init__(("127.0.0.1", port), _Answer)


class _Answer(socketserver.StreamRequestHandler):
    timeout = 5

    def handle(self) -> None:
        server: Any = self.server
        with suppress(OSError):  # whoever asked is gone
            name = self.rfile.readline(200).decode(errors="replace").strip()
            probe = server.probes.get(name)
            # Without a word HAProxy leaves the rank as it is.
            if probe is not None and probe.known:
                # HAProxy logs what follows the sign.
                words = f"down #{_line(probe.down)}" if probe.down else "up"
                self.wfile.write(f"{words}\n".encode())


def _line(text: str) -> str:
    return " ".join(text.split())[:120]
