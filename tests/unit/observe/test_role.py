"""The stage on this machine without root: real Prometheus, Alertmanager and node exporter."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.flows.clone import wait_until
from tests.unit.router.site import KEY
from vllm_ansible.node.engine.metrics import total

from .conftest import PROGRAMS, ObservedSite, evidence

# In `make test` molecule plays the exporters; what Prometheus itself reads is in test_config.py.
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not all(PROGRAMS.values()), reason="no prometheus, alertmanager or node exporter here"
    ),
]


def ask(port: int, path: str, key: str = "") -> tuple[int, str]:
    """Return status and text of a page of one of the programs."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if key:
        word = base64.b64encode(f"observe:{key}".encode()).decode()
        request.add_header("Authorization", f"Basic {word}")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_it_scrapes_each_target_calls_and_opens_to_its_key_alone(site: ObservedSite) -> None:
    """One story, since each play takes seconds."""
    status, said, events = site.observe()
    assert status == 0, said
    found = evidence(events)
    url = f"http://127.0.0.1:{site.ports[0]}"
    # The stand-in was never planned.
    lacking = "no planned limit, so no alert: chat (TTFT and ITL)"
    assert found["summary"] == f"watches 2 targets from {url}, no alert fires; {lacking}"
    assert found["values"] == {"url": url, "targets": 2}
    key = (site.cluster_dir / "observe/secrets/key").read_text().strip()
    prometheus, alertmanager, node = site.ports[0], site.ports[0] + 1, site.ports[2]
    pages = {prometheus: "/metrics", alertmanager: "/api/v2/alerts", node: "/metrics"}
    for port, page in pages.items():
        assert [ask(port, page, one)[0] for one in (key, "", KEY)] == [200, 401, 401]
    assert json.loads(ask(alertmanager, "/api/v2/alerts", key)[1])[0]["labels"] == {
        "alertname": "AlertsArrive",
        "severity": "none",
    }
    text = ask(node, "/metrics", key)[1]
    assert "vllm_limit" not in text
    assert total(text, "vllm_written_timestamp_seconds") > 1.7e9
    holding = {
        path
        for path in site.directory.rglob("*")
        if path.is_file() and KEY in path.read_text(errors="replace")
    }
    assert holding == {site.key_file}
    assert key not in said and KEY not in said
    page = site.cluster_dir / "observe/page/cluster.json"

    def shown() -> Any:
        return page.exists() and json.loads(page.read_text())

    def states() -> list[str]:
        found = shown()
        return [one["state"] for one in [*found["engines"][0]["ranks"], *found["hosts"]]]

    wait_until(lambda: shown() and states() == ["answers"] * 2, 120, "figures for the page")
    assert (shown()["problem"], shown()["alerts"], shown()["spend"]) == ("", [], None)
    assert shown()["engines"][0]["first_token_limit"] is None
    # As nginx compares it with what the page makes of the engines' key.
    kept = (site.cluster_dir / "observe/secrets/htpasswd").read_text()
    digest = hashlib.sha1(key.encode()).digest()  # noqa: S324 - the form of nginx
    assert kept == f"observe:{{SHA}}{base64.b64encode(digest).decode()}\n"


def test_again_it_changes_nothing_and_off_leaves_nothing(site: ObservedSite) -> None:
    assert site.observe()[0] == 0
    for options in ((), ("--check",)):
        status, said, _ = site.observe(*options)
        assert status == 0, said
        assert "changed=0" in said
    pid, node = site.pid("observe-prometheus"), site.pid("observe-node")
    status, said, _ = site.observe(observe_first_token_seconds=3)
    assert status == 0, said
    assert (site.pid("observe-prometheus"), site.pid("observe-node")) == (pid, node)
    # A run over some hosts knows no others: what Prometheus watches stays.
    targets = site.cluster_dir / "observe/settings/targets.json"
    before = targets.read_text()
    targets.write_text("[]")
    status, said, _ = site.observe("--limit", "here")
    assert (status, targets.read_text()) == (0, "[]"), said
    assert site.observe()[0] == 0
    assert targets.read_text() == before
    files = site.directory / "files"
    status, said, events = site.observe(observe_mode="files", observe_directory=str(files))
    assert status == 0, said
    lacking = "no planned limit, so no alert: chat (TTFT and ITL)"
    assert evidence(events)["summary"].endswith(f"{files}; {lacking}")
    # The page shows what a Prometheus of ours knows, and none of ours runs any more.
    assert not (site.cluster_dir / "observe/page").exists()
    assert not (site.cluster_dir / "observe/secrets/htpasswd").exists()
    status, said, events = site.observe(observe_mode="off")
    assert status == 0, said
    assert evidence(events)["summary"] == "here: not observed any more"
    assert not any(site.pid(f"observe-{one}") for one in ("facts", "node", "prometheus"))
    left = {path.name for path in (site.cluster_dir / "observe").iterdir()}
    assert left == {"data"} | {name for name in left if name.startswith("program-")}


def test_a_target_that_does_not_answer_fails_the_stage_and_is_named(site: ObservedSite) -> None:
    status, said, _ = site.observe(site_plan=plan_with(site, port=site.port + 1))
    assert status != 0
    assert f"here: check failed: vllm scraped at http://127.0.0.1:{site.port + 1}/metrics" in said


def plan_with(site: ObservedSite, port: int) -> dict[str, Any]:
    ports = {**site.engine["ports"], "api": port}
    return {"engines": [{**site.engine, "ports": ports}]}
