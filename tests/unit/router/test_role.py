"""The role on this machine without root: its own supervisor, a real HAProxy, emulated ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.engine import router
from vllm_ansible.plan.ports import ports_for

from .client import ask, listens
from .running import EMULATOR, HAPROXY, ROOT, wait_until
from .site import KEY, PLAY, Site

# Ten plays; molecule/router plays the role once in every run of the tests.
pytestmark = [
    pytest.mark.skipif(HAPROXY is None, reason="no haproxy on this machine"),
    pytest.mark.soak,
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    # Sockets have short paths only.
    made = Site(tmp_path_factory.mktemp("router"), Path(tempfile.mkdtemp(prefix="rr")))
    made.start_ranks()
    yield made
    made.end()


def evidence(events: list[dict[str, Any]]) -> dict[str, Any]:
    found = [one for one in events if one["event"] == "evidence" and one["gate"] == "router"]
    assert len(found) == 1, found
    return found[0]


def test_check_mode_says_what_would_be_put_on_a_host_that_has_nothing_yet(site: Site) -> None:
    status, said, _ = site.play("--check")
    assert status == 0, said
    assert "changed=0" not in said
    assert not (site.cluster_dir / "routers").exists()


def test_a_router_stands_before_both_ranks(site: Site) -> None:
    status, said, events = site.play()
    assert status == 0, said
    told = evidence(events)
    assert told["summary"] == f"chat at http://127.0.0.1:{site.port}/v1 before 2 ranks, all up"
    assert [one["proven"] for one in told["values"]["ranks"]] == [True, True]
    assert (site.status(), site.status("")) == (200, 401)
    files = [path for path in site.cluster_dir.rglob("*") if path.is_file()]
    holding = {path.name for path in files if KEY in path.read_text(errors="replace")}
    assert holding == {"api_key", "keys.cfg", "clients.keys"}
    for name in ("keys.cfg", "clients.keys"):
        assert (site.cluster_dir / "routers/chat" / name).stat().st_mode & 0o777 == 0o600
    assert KEY not in said


def test_the_second_run_changes_nothing(site: Site) -> None:
    for options in ((), ("--check",)):
        status, said, _ = site.play(*options)
        assert status == 0, said
        assert "changed=0" in said


def test_a_rank_that_was_told_to_drain_stays_so_and_is_named(site: Site) -> None:
    path = str(site.run_dir / "router0/admin.sock")
    assert router.ask(path, "set server ranks/rank-1 state drain").strip() == ""
    try:
        status, said, events = site.play()
        drains = {one["name"] for one in router.ranks(path) if one["draining"]}
    finally:
        router.ask(path, "set server ranks/rank-1 state ready")
    assert status == 0, said
    assert "changed=0" in said
    assert drains == {"rank-1"}
    assert "before 2 ranks, 1 up; set to drain: rank-1 (" in evidence(events)["summary"]


def test_a_watch_or_haproxy_that_was_killed_is_started_again(site: Site) -> None:
    for name, port in (("chat-watch", site.watch_port), ("chat-router", site.port)):
        pid = site.pid(name)
        assert pid, f"{name} does not run"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda name=name, pid=pid: site.pid(name) not in (0, pid))
        wait_until(lambda port=port: listens(port))
    wait_until(lambda: site.status() == 200)


def test_what_interrupts_requests_waits_until_that_is_allowed(site: Site, tmp_path: Path) -> None:
    """Further keys of clients, which the ranks never see, are such a change."""
    further = tmp_path / "keys"
    further.write_text("first-client\nsecond-client\n")
    given = {"router_client_keys_file": str(further)}
    status, said, _ = site.play(**given)
    assert status != 0
    assert "chat-watch" in said
    assert (site.status(), site.status("first-client")) == (200, 401)
    status, said, _ = site.play(**given, allow_disruption=True)
    assert status == 0, said
    found = [site.status(key) for key in (KEY, "first-client", "second-client", "third", "")]
    assert found == [200, 200, 200, 401, 401]


def test_a_rank_that_does_not_compute_fails_the_gate_by_its_name(site: Site) -> None:
    port = site.engine["ports"]["worker_first"] + 1
    assert ask(port, "POST", "/set", {"hung": True})[0] == 200
    try:
        status, said, events = site.play(allow_disruption=True)
    finally:
        ask(port, "POST", "/set", {"hung": False})
    assert status != 0
    (failure,) = [one for one in events if one["event"] == "failure"]
    assert "check failed: rank-1 up in the router" in failure["msg"]
    # By the watch: no token for so long, or its question broken off by the rank.
    assert "down (" in failure["found"], said


def test_without_haproxy_each_rank_stays_an_endpoint_and_the_run_says_so(site: Site) -> None:
    status, said, events = site.play(router_haproxy="/nowhere/haproxy")
    assert status == 0, said
    summary = evidence(events)["summary"]
    assert "no router for chat: each rank is an endpoint of its own" in summary
    assert "apt-get install haproxy" in summary
    # One that ran before is gone, since nothing could start it again.
    assert not listens(site.port)
    status, said, events = site.play(router_haproxy="/nowhere/haproxy", router_mode="required")
    assert status != 0
    assert "check failed: an HAProxy for the router" in said


def test_a_stranger_on_its_port_is_named(site: Site) -> None:
    command = [sys.executable, str(EMULATOR), "--ports", str(site.port)]
    stranger = subprocess.Popen(command, cwd=ROOT)
    try:
        wait_until(lambda: listens(site.port))
        status, said, _ = site.play()
    finally:
        stranger.kill()
        stranger.wait()
    assert status != 0
    assert f"port {site.port} for chat-router" in said


def test_a_router_that_ends_at_once_fails_the_gate_with_its_log(site: Site, tmp_path: Path) -> None:
    """An HAProxy that likes its configuration, and nothing else."""
    ends = tmp_path / "haproxy"
    check = f'for last; do :; done; [ "$last" = -c ] && exec {HAPROXY} "$@"'
    ends.write_text(f"#!/bin/sh\n{check}\nexit 3\n")
    ends.chmod(0o755)
    status, said, events = site.play(router_haproxy=str(ends), allow_disruption=True)
    assert status != 0
    (failure,) = [one for one in events if one["event"] == "failure"]
    assert "check failed: rank-0 up in the router" in failure["msg"], said
    assert "the router does not answer on" in failure["found"]
    assert "chat-router.log" in failure["fix"]


def test_a_router_of_ranks_that_are_no_more_leaves_its_port_to_the_server(site: Site) -> None:
    """The stage cluster asks whether planned ports are free before the router's role is played."""
    assert site.play(allow_disruption=True)[0] == 0
    alone = {"name": "chat-serve", "engine": "chat", "part": "serve"}
    phases = ("stop_serve", "stop_workers", "stop_heads", "start_heads", "start_workers")
    decision = {
        "hosts": {"here": {**{phase: [] for phase in phases}, "start_serve": [alone]}},
        "engines": {"chat": {"action": "restart"}},
    }
    ports = asdict(ports_for(0, site.port, site.engine["ports"]["gcs"]))
    engine = {**site.engine, "layout": {"tensor": 1, "pipeline": 1}, "ports": ports}
    look = {"cluster": "standin", "cluster_dir": str(site.cluster_dir)}
    change = {"name": "ray", "tasks_from": "change", "rolespec_validate": False}
    tasks = [
        {"name": "Look", "processes_info": look, "register": "looked"},
        {
            "name": "Keep",
            "ansible.builtin.set_fact": {"plan_processes": "{{ looked.processes }}"},
        },
        {"name": "Change", "ansible.builtin.include_role": change},
    ]
    play = [{key: value for key, value in PLAY[0].items() if key != "roles"} | {"tasks": tasks}]
    status, said, _ = site.play(play=play, site_plan={"engines": [engine]}, plan_decision=decision)
    assert status == 0, said
    assert not listens(site.port) and not listens(site.watch_port)
    # With it goes the key that it was given.
    assert not (site.cluster_dir / "routers/chat").exists()
