"""What the watch itself has asked of the ranks, for Prometheus, on a private socket."""

from __future__ import annotations

import http.server
import os
import socketserver
import sys
import time
from collections.abc import Mapping
from typing import Any

from probing import Probe
from pump import Pump


def text(probes: Mapping[str, Probe], pump: Pump | None) -> str:
    """Return every figure as Prometheus reads it."""
    rows: dict[str, Mapping[str, float]] = {
        "router_rank_computes": {name: 0 if one.down else 1 for name, one in probes.items()},
        "router_probe_requests_total": {name: one.requests for name, one in probes.items()},
        "router_probe_tokens_total": {name: one.tokens for name, one in probes.items()},
    }
    if pump is not None:
        rows["router_pump_requests_total"] = pump.requests
        rows["router_pump_tokens_total"] = pump.tokens
        rows["router_pump_failures_total"] = pump.failures
    lines = []
    for figure, values in rows.items():
        lines.append(f"# TYPE {figure} {'counter' if figure.endswith('_total') else 'gauge'}")
        lines += [f'{figure}{{rank="{name}"}} {value}' for name, value in values.items()]
    lines.append("# TYPE router_watch_processor_seconds_total counter")
    lines.append(f"router_watch_processor_seconds_total {time.process_time():.3f}")
    return "\n".join(lines) + "\n"


class Figures(socketserver.ThreadingUnixStreamServer):
    """Answers every GET with the figures."""

    daemon_threads = True

    def __init__(self, path: str, probes: Mapping[str, Probe], pump: Pump | None) -> None:
        self.probes, self.pump = probes, pump
        if os.path.lexists(path):
            os.unlink(path)
        before = os.umask(0o177)
        try:
            super().__init__(path, _Page)
        finally:
            os.umask(before)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line what went wrong with one reader."""
        print(f"figures: {sys.exc_info()[1]}", flush=True)


class _Page(http.server.BaseHTTPRequestHandler):
    timeout = 5

    def do_GET(self) -> None:
        server: Any = self.server
        body = text(server.probes, server.pump).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet: a line for each reading is of no use."""
