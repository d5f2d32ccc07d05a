"""The role on this machine without root: started once, left alone by a second run, taken back."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.router.running import wait_until
from tests.unit.router.site import Site

TASKS: list[dict[str, Any]] = [
    {
        "name": "Look",
        "processes_info": {
            "cluster": "{{ cluster_name }}",
            "cluster_dir": "{{ site_host.cluster_dir }}",
        },
        "register": "__look",
    },
    {
        "name": "Watch",
        "include_role": {"name": "watchdog", "rolespec_validate": False},
        "vars": {"watchdog_processes": "{{ __look.processes }}"},
    },
]
PLAY = [{"name": "Watch the engines", "hosts": "gpu", "gather_facts": False, "tasks": TASKS}]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    # Sockets have short paths only.
    made = Site(tmp_path, Path(tempfile.mkdtemp(prefix="wd")))
    yield made
    if made.pid("watchdog") or made.pid("watchdog-restarts"):
        play(made, "off")
    made.end()


def play(site: Site, restart: str) -> tuple[int, str, list[dict[str, Any]]]:
    """Run the role; what restarts engines has the watchdog with it."""
    return site.play(play=PLAY, watchdog_restart=restart, site_head="here")


def changed(events: list[dict[str, Any]]) -> list[str]:
    tasks = [one for one in events if one["event"] == "task"]
    return [one["task"] for one in tasks if one["status"] == "changed"]


def test_it_is_started_left_alone_and_taken_back(site: Site) -> None:
    status, output, _ = play(site, "ask")
    assert status == 0, output
    pid = site.pid("watchdog")
    state = site.run_dir / "watchdog/state.json"
    log = site.cluster_dir / "logs/watchdog.log"
    wait_until(lambda: pid and state.exists())
    assert json.loads(state.read_text())["engines"] == {"chat": "running"}
    assert "watches chat" in log.read_text()
    asks, kept = site.pid("watchdog-restarts"), site.cluster_dir / "watchdog/restarts"
    wait_until(lambda: asks and (kept / "state.json").exists())
    assert "ask: chat" in (site.cluster_dir / "logs/watchdog-restarts.log").read_text()
    status, output, events = play(site, "ask")
    assert status == 0 and changed(events) == [], output
    assert (site.pid("watchdog"), site.pid("watchdog-restarts")) == (pid, asks)
    status, output, _ = play(site, "off")
    assert status == 0, output
    assert site.pid("watchdog") == site.pid("watchdog-restarts") == 0
    assert not state.exists() and not kept.exists()
    status, output, events = play(site, "off")
    assert status == 0 and changed(events) == [], output
