"""One host without root that is observed: its own supervisor, a stand-in engine, real programs."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.unit.router.site import KEY, Site

ROOT = Path(__file__).parents[3]
OBSERVE = [{"name": "Observe", "import_playbook": str(ROOT / "playbooks/observe.yml")}]
SEARCHED = f"{os.environ['PATH']}:/usr/sbin"
PROGRAMS = {
    f"observe_{name}": shutil.which(program, path=SEARCHED) or ""
    for name, program in (
        ("prometheus", "prometheus"),
        ("alertmanager", "prometheus-alertmanager"),
        ("node_exporter", "prometheus-node-exporter"),
    )
}
# As a real engine's page begins (tests/unit/observe/data/healthy.json has more of one).
PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
"""


class Page(BaseHTTPRequestHandler):
    """A page with figures for whoever shows the engines' key."""

    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == f"Bearer {KEY}"
        self.send_response(200 if known and self.path == "/metrics" else 401)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class WatchedSite(Site):
    """One host that real programs watch, and whom they call."""

    def __init__(self, directory: Path, run_dir: Path) -> None:
        super().__init__(directory, run_dir)
        self.engine |= {"executor": "mp", "estimate": {}}
        # The second rank has the port after the first one's.
        taken = self.engine["ports"]["worker_first"] + 1
        self.ports = free_ports(3)
        while self.ports[1] != self.ports[0] + 1 or taken in self.ports:
            self.ports = free_ports(3)

    def observe(self, *options: str, **variables: Any) -> tuple[int, str, list[dict[str, Any]]]:
        """Play the stage."""
        given = {
            "site_head": "here",
            "site_state_dir": str(self.directory / "state"),
            # What the stage would find out of an inventory, and hold for this run.
            "site_validated": True,
            "site_lock_seen": time.time() + 86400,
            "observe_mode": "run",
            "observe_port": self.ports[0],
            "observe_node_port": self.ports[2],
            "observe_interval_seconds": 1,
            **PROGRAMS,
            **variables,
        }
        return self.play(*options, play=OBSERVE, **given)

    def arrived(self) -> dict[str, dict[str, str]]:
        """Return labels and words of each alert that Alertmanager has, by its name."""
        key = (self.cluster_dir / "observe/secrets/key").read_text().strip()
        word = base64.b64encode(f"observe:{key}".encode()).decode()
        url = f"http://127.0.0.1:{self.ports[1]}/api/v2/alerts"
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {word}"})
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            alerts = json.loads(answer.read())
        # Of another disk or link of this machine, too: the last one of each name.
        return {
            one["labels"]["alertname"]: {**one["labels"], **one["annotations"]} for one in alerts
        }


class ObservedSite(WatchedSite):
    """One host with an engine that has figures."""

    def __init__(self, directory: Path, run_dir: Path) -> None:
        super().__init__(directory, run_dir)
        self.engine["layout"] = {"data": 1, "tensor": 1, "pipeline": 1}
        self.page = ThreadingHTTPServer(("127.0.0.1", self.port), Page)
        threading.Thread(target=self.page.serve_forever, daemon=True).start()

    def end(self) -> None:
        self.page.shutdown()
        self.end_supervisor()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedSite]:
    # Sockets have short paths only.
    made = ObservedSite(tmp_path_factory.mktemp("observe"), Path(tempfile.mkdtemp(prefix="ob")))
    yield made
    made.end()


def evidence(events: list[dict[str, Any]], gate: str = "observe") -> dict[str, Any]:
    """Return the last evidence of a gate."""
    return [one for one in events if one["event"] == "evidence" and one["gate"] == gate][-1]
