"""The tasks that look for notices, on this machine without root: started, left alone, withdrawn."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators import imds
from tests.unit.router.site import Site

LOOK: dict[str, Any] = {
    "name": "Look",
    "processes_info": {
        "cluster": "{{ cluster_name }}",
        "cluster_dir": "{{ site_host.cluster_dir }}",
    },
    "register": "__look",
}


def notices(provider: str) -> dict[str, Any]:
    return {
        "name": "Look for notices",
        "include_role": {
            "name": "provision",
            "tasks_from": "notices",
            "rolespec_validate": False,
        },
        "vars": {
            "provision_processes": "{{ __look.processes }}",
            "provision_provider": provider,
        },
    }


def play(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"name": "Serve", "hosts": "gpu", "gather_facts": False, "tasks": list(tasks)}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    # Sockets have short paths only.
    made = Site(tmp_path, Path(tempfile.mkdtemp(prefix="no")))
    made.engine["layout"]["data"] = 1
    yield made
    made.end_supervisor()


def test_it_is_started_left_alone_and_withdrawn(site: Site, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    log: list[str] = []
    with imds.server(tmp_path / "metadata", log=log) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        wait = {
            "name": "Wait for a look",
            "ansible.builtin.wait_for": {"path": f"{site.run_dir}/notices/state.json"},
        }
        keep = {
            "name": "Keep it",
            "ansible.builtin.command": f"cp {site.run_dir}/notices/state.json {tmp_path}/kept",
            "changed_when": False,
        }
        status, output, events = site.play(
            play=[
                play(LOOK, notices("aws"), wait, keep, LOOK, notices("aws")),
                play(LOOK, notices("")),
            ],
            aws_market="spot",
            provision_metadata="http://127.0.0.1:{1}".format(*server.server_address),
        )
        server.shutdown()
    assert status == 0, output
    kept = json.loads((tmp_path / "kept").read_text())
    assert kept["error"] == "" and kept["own"] is None
    assert "GET /latest/meta-data/spot/instance-action 404" in log
    changed = [one["task"] for one in events if one.get("status") == "changed"]
    assert changed == [
        "Put the watch for notices in place",
        "Run it",
        "Stop the watch for notices",
        "Remove its files",
    ]
    assert site.pid("notices") == 0 and not (site.cluster_dir / "notices").exists()
