"""The role on this machine without root: its own supervisor, a real HAProxy, emulated ranks."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.node import router
from vllm_ansible.planner.routers import WATCH_PORT

from .running import EMULATOR, HAPROXY, ROOT, ask, free_ports, listens, wait_until

KEY = "sk-never-to-be-seen-0815"
PLAY = [
    {
        "name": "Put a router before the ranks",
        "hosts": "gpu",
        "gather_facts": False,
        "any_errors_fatal": True,
        "tags": ["serve"],
        "roles": ["router"],
    }
]

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="no haproxy on this machine")


def neighbours() -> int:
    """Return a port that is free as the next one is."""
    while True:
        (first,) = free_ports(1)
        if not listens(first + 1):
            return first


class Site:
    """One host with an engine of two ranks, which are emulated."""

    def __init__(self, directory: Path, run_dir: Path) -> None:
        self.directory, self.run_dir = directory, run_dir
        self.cluster_dir = directory / "cluster"
        self.key_file = self.cluster_dir / "secrets/api_key"
        self.key_file.parent.mkdir(parents=True)
        self.key_file.write_text(f"{KEY}\n")
        tools = self.cluster_dir / "tools/bin"
        tools.mkdir(parents=True)
        (tools / "python").symlink_to(sys.executable)
        # A link alone loses the packages of a virtual environment.
        shutil.copy(Path(sys.prefix) / "pyvenv.cfg", tools.parent)
        (tools.parent / "lib").symlink_to(Path(sys.prefix) / "lib")
        # What an image has for a Python starts a container, which no service may.
        self.image_python = directory / "image-python"
        self.image_python.write_text("#!/bin/sh\nexit 70\n")
        self.image_python.chmod(0o755)
        self.port, block = free_ports(2)
        self.engine: dict[str, Any] = {
            "name": "chat",
            "index": 0,
            "served_name": "m",
            "layout": {"data": 2, "tensor": 1, "pipeline": 1},
            "hosts": ["here"],
            "ranks": [{"host": "here", "device": 0}, {"host": "here", "device": 1}],
            "ports": {"api": self.port, "gcs": block - WATCH_PORT, "worker_first": neighbours()},
            "probe": {"prompt": "Capital?", "expect": "Paris", "reasoning": False},
        }
        self.host: dict[str, Any] = {
            "name": "here",
            "address": "127.0.0.1",
            "accelerator": "nvidia",
            "cluster_dir": str(self.cluster_dir),
            "run_dir": str(run_dir),
            "service_user": pwd.getpwuid(os.getuid()).pw_name,
            "supervisor": "supervisord",
            "privileges": "none",
            "distribution": "debian",
            "pid1": "init",
            "cores": 2,
        }
        self.watch_port = block
        self.processes: list[subprocess.Popen[bytes]] = []

    def start_ranks(self) -> None:
        """Start ranks at ports that follow each other, as those of an engine do."""
        first = self.engine["ports"]["worker_first"]
        for port in (first, first + 1):
            command = [sys.executable, str(EMULATOR), "--ports", str(port), "--key", KEY]
            self.processes.append(subprocess.Popen(command, cwd=ROOT))
            wait_until(lambda port=port: listens(port))

    def play(self, *options: str, **variables: Any) -> tuple[int, str, list[dict[str, Any]]]:
        """Run the role; return its status, console and record."""
        host = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "cluster_name": "standin",
            "site_host": self.host,
        }
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"gpu": {"hosts": {"here": host}}}))
        playbook = self.directory / "play.yml"
        playbook.write_text(yaml.safe_dump(PLAY))
        given = {
            "site_hosts": [self.host],
            "site_plan": {"engines": [self.engine]},
            "site_api_key_file": str(self.key_file),
            "sources_environment": {},
            "allow_disruption": False,
            "environment_installed": {
                "python": str(self.image_python),
                "versions": {"vllm": "0.32.0"},
            },
            "router_haproxy": HAPROXY,
            # More than a busy machine takes for one token, and less than the gate waits.
            "router_answer_seconds": "4",
            **variables,
        }
        extra = self.directory / "extra.json"
        extra.write_text(json.dumps(given))
        command = ["ansible-playbook", "-i", str(inventory), "-e", f"@{extra}", *options]
        done = subprocess.run(
            [str(Path(sys.executable).with_name(command[0])), *command[1:], str(playbook)],
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "VLLM_ANSIBLE_RUNS_DIR": str(self.directory / "runs"),
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        lines = (self.directory / "runs/latest/events.jsonl").read_text().splitlines()
        return done.returncode, done.stdout + done.stderr, [json.loads(line) for line in lines]

    def status(self, key: str = KEY) -> int:
        body = {"model": "m", "prompt": "p", "max_tokens": 2}
        return ask(self.port, "POST", "/v1/completions", body, key)[0]

    def end(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait()
        self.play("-e", "router_mode=never")
        pid = self.run_dir / "supervisord.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
        shutil.rmtree(self.run_dir, ignore_errors=True)


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


def test_a_router_stands_before_both_ranks(site: Site) -> None:
    status, said, events = site.play()
    assert status == 0, said
    told = evidence(events)
    assert f"chat at http://127.0.0.1:{site.port}/v1 before 2 ranks, all up" in told["summary"]
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
    assert "before 2 ranks, 1 up; told to drain: rank-1 (" in evidence(events)["summary"]


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
    assert "rank-1 up in the router does not hold" in failure["msg"]
    assert "no token for" in failure["found"], said


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
    assert "an HAProxy for the router does not hold" in said


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
    assert "rank-0 up in the router does not hold" in failure["msg"], said
    assert "the router does not answer on" in failure["found"]
    assert "chat-router.log" in failure["fix"]
