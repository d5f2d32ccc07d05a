"""The role and its stage on this machine without root: its own supervisor, a real HAProxy."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.metered_engine import MeteredEngine
from tests.ports import free_port
from tests.unit.router.site import KEY, Site
from vllm_ansible.cli.main import main
from vllm_ansible.door.haproxy import threads

from .running import FIXED, HAPROXY, ROOT, SHOWN, wait_until

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="no haproxy on this machine")

ROUTE = [{"name": "Route", "import_playbook": str(ROOT / "playbooks/route.yml")}]


class DoorSite(Site):
    """One host with an engine, clients on the controller, and a door before it."""

    def __init__(self, directory: Path, run_dir: Path) -> None:
        super().__init__(directory, run_dir)
        self.engine["layout"] = {"data": 1, "tensor": 1, "pipeline": 1}
        self.server = MeteredEngine("m", self.port, KEY)
        self.clients = directory / "clients.yml"
        self.door_port = free_port()

    def route(self, *options: str, **variables: Any) -> tuple[int, str, list[dict[str, Any]]]:
        """Play the door."""
        given = {
            "site_head": "here",
            # What the stage would find out of an inventory, and hold for this run.
            "site_validated": True,
            "site_lock_seen": time.time() + 86400,
            "door_clients_file": str(self.clients),
            "door_port": self.door_port,
            "door_haproxy": HAPROXY,
        }
        return self.play(*options, play=ROUTE, **{**given, **variables})

    def second(self) -> Path:
        """Make a second host of this machine, at another address; return its directory."""
        directory = self.directory / "second"
        shutil.copytree(self.cluster_dir / "tools", directory / "tools", symlinks=True)
        (directory / "secrets").mkdir()
        shutil.copy(self.key_file, directory / "secrets")
        run_dir = tempfile.mkdtemp(prefix="dt")
        more = {"name": "there", "address": "127.0.0.2", "cluster_dir": str(directory)}
        self.hosts.append({**self.host, **more, "run_dir": run_dir})
        return directory

    def certificate(self) -> Path:
        """Return the certificate that the host made; for other names it makes another one."""
        found = (self.cluster_dir / "door/tls").glob("*.crt")
        return max(found, key=lambda one: one.stat().st_mtime)

    def ask(self, key: str, at: str = "127.0.0.1", **body: Any) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.certificate()))
        connection = http.client.HTTPSConnection(at, self.door_port, timeout=300, context=context)
        headers = {"Authorization": f"Bearer {key}"}
        connection.request("POST", "/v1/completions", json.dumps({"model": "m", **body}), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def end(self) -> None:
        self.server.end()
        for host in self.hosts:
            self.run_dir = Path(host["run_dir"])
            super().end_supervisor()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorSite]:
    # Sockets have short paths only.
    made = DoorSite(tmp_path_factory.mktemp("door"), Path(tempfile.mkdtemp(prefix="ds")))
    with made.server:
        yield made
        made.end()


def add(site: DoorSite, capsys: pytest.CaptureFixture[str], name: str, *limits: str) -> str:
    assert main(["key", "add", name, "--file", str(site.clients), *limits]) == 0
    return capsys.readouterr().out.strip()


def evidence(events: list[dict[str, Any]]) -> dict[str, Any]:
    found = [one for one in events if one["event"] == "evidence" and one["gate"] == "door"]
    return found[-1]


def test_from_a_key_to_an_answer_and_a_key_that_is_revoked_meanwhile(
    site: DoorSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """One story, since each play takes seconds."""
    alice, bob = add(site, capsys, "alice", "--requests-per-minute", "9"), add(site, capsys, "bob")
    status, said, events = site.route()
    assert status == 0, said
    told = evidence(events)
    url = f"https://127.0.0.1:{site.door_port}/v1"
    assert f"{url} for m, 2 clients, certificate SHA-256 " in told["summary"]
    assert [one["gate"] for one in events if one["event"] == "evidence"] == ["door"]
    assert told["values"]["url"] == url and len(told["values"]["fingerprint"]) == 95
    assert [site.ask(key)[0] for key in (alice, bob, KEY, "")] == [200, 200, 401, 401]
    look_at_secrets(site, said, (alice, bob))
    # As many as this release of HAProxy may have on two cores.
    written = (site.cluster_dir / "door/settings/haproxy.cfg").read_text()
    assert SHOWN is not None and f"nbthread {threads(SHOWN.stdout, 2)}\n" in written

    pid = site.pid("door")
    # The C library reads how much memory it keeps from the environment of its process.
    has = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    assert {f"{name}={value}" for name, value in FIXED["door_environment"].items()} <= set(has)
    with waiting_stream(site, alice) as streamed:
        assert main(["key", "revoke", "alice", "--file", str(site.clients)]) == 0
        capsys.readouterr()
        carol = add(site, capsys, "carol")
        status, said, _ = site.route()
        assert status == 0, said
        assert [site.ask(key)[0] for key in (alice, bob, carol)] == [401, 200, 200]
    assert streamed[0].endswith("data: [DONE]\n\n")
    assert site.pid("door") == pid


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[DoorSite]:
    """Return a site of two hosts, each with a supervisor of its own."""
    made = DoorSite(tmp_path, Path(tempfile.mkdtemp(prefix="ds")))
    with made.server:
        made.second()
        yield made
        made.end()


@pytest.mark.soak
def test_two_hosts_have_doors_with_one_certificate_that_read_each_other(
    pair: DoorSite, capsys: pytest.CaptureFixture[str]
) -> None:
    key = add(pair, capsys, "alice", "--tokens-per-day", "30")
    status, said, events = pair.route(door_hosts=["here", "there"])
    assert status == 0, said
    told = [one for one in events if one["event"] == "evidence"]
    assert {one["values"]["url"] for one in told} == {
        f"https://{host['address']}:{pair.door_port}/v1" for host in pair.hosts
    }
    assert len({one["values"]["fingerprint"] for one in told}) == 1
    (shared,) = (pair.directory / "second/door/tls").glob("*.key")
    assert shared.read_text() == pair.certificate().with_suffix(".key").read_text()
    assert shared.stat().st_mode & 0o777 == 0o600
    assert shared.read_text().splitlines()[1] not in said
    # 10 tokens each; the second door knows what went through the first.
    places = [host["address"] for host in pair.hosts]
    assert [pair.ask(key, places[0], max_tokens=3)[0] for _ in range(3)] == [200] * 3
    wait_until(lambda: pair.ask(key, places[1], max_tokens=3)[0] == 429)


@pytest.mark.soak
def test_of_two_doors_one_is_taken_out_and_the_other_goes_on(
    pair: DoorSite, capsys: pytest.CaptureFixture[str]
) -> None:
    key = add(pair, capsys, "alice", "--tokens-per-day", "30")
    both, places = ["here", "there"], [host["address"] for host in pair.hosts]
    assert pair.route(door_hosts=both)[0] == 0
    for options in ((), ("--check",)):
        status, said, _ = pair.route(*options, door_hosts=both)
        assert status == 0 and "changed=0, failed=0" in said, said
    status, said, _ = pair.route("--limit", "here", door_hosts=both, site_hosts=pair.hosts[:1])
    assert status != 0
    assert "door_hosts: check failed: the host of the door" in said

    assert [pair.ask(key, places[1], max_tokens=3)[0] for _ in range(3)] == [200] * 3
    wait_until(lambda: pair.ask(key, places[0], max_tokens=3)[0] == 429)
    status, said, events = pair.route(door_hosts=["here"])
    assert status == 0, said
    assert any(
        one.get("summary") == "no door on there any more"
        for one in events
        if one["event"] == "evidence"
    )
    # What was used at the door that is gone still counts today.
    assert pair.ask(key, places[0], max_tokens=3)[0] == 429


def test_a_cluster_without_a_door_sees_nothing_of_the_stage(site: DoorSite) -> None:
    """Neither a line nor a stage in the record, after stages that have looked at the processes."""
    looked = {
        "name": "Start the engines",
        "hosts": "gpu",
        "gather_facts": False,
        "tags": ["serve"],
        "tasks": [
            {
                "name": "Look at the processes of this host",
                "ansible.builtin.set_fact": {"plan_processes": {"chat-serve": {}}},
            }
        ],
    }
    status, said, events = site.play(play=[looked, *ROUTE])
    assert status == 0, said
    assert "serve" in said and "route" not in said
    assert {one["stage"] for one in events if one["event"] == "stage_start"} == {"serve"}


@pytest.mark.soak
def test_other_settings_end_no_request_and_without_clients_there_is_no_door(
    site: DoorSite, capsys: pytest.CaptureFixture[str]
) -> None:
    key = add(site, capsys, "dave")
    assert site.route()[0] == 0
    for options in ((), ("--check",)):
        status, said, _ = site.route(*options)
        assert status == 0, said
        assert "changed=0" in said
    pid = site.pid("door")
    with waiting_stream(site, key) as streamed:
        others = {"door_names": ["llm.example.org"], "door_balance": "conversations"}
        status, said, events = site.route(door_most_body_bytes=1000, **others)
        assert status == 0, said
        elsewhere = f"/v1 and https://llm.example.org:{site.door_port}/v1 for m, "
        assert elsewhere in evidence(events)["summary"]
        assert site.ask(key, prompt="x" * 1000)[0] == 413
    assert streamed[0].endswith("data: [DONE]\n\n")
    assert site.pid("door") == pid

    status, said, events = site.route(door_clients_file="")
    assert status == 0, said
    assert evidence(events)["summary"] == "no door on here any more"
    assert not site.pid("door")
    status, said, events = site.route("--check")
    assert status == 0, said
    assert evidence(events)["summary"].startswith("would offer https://")
    left = {path.name for path in (site.cluster_dir / "door").iterdir()}
    assert left == {"usage"} | {name for name in left if name.startswith("program-")}


@pytest.mark.soak
def test_another_environment_restarts_the_door_once_that_is_allowed(
    site: DoorSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a later release may bring it. What clients have used counts on."""
    key, other_key = add(site, capsys, "erin", "--tokens-per-day", "1"), add(site, capsys, "frank")
    assert site.route()[0] == 0
    pid = site.pid("door")
    other = {**FIXED["door_environment"], "MALLOC_TRIM_THRESHOLD_": "33554432"}
    with waiting_stream(site, key) as streamed:
        status, said, events = site.route(door_environment=other)
        assert status != 0
        (failure,) = [one for one in events if one["event"] == "failure"]
        assert "allow_disruption=true" in failure["fix"], failure
        assert site.pid("door") == pid
    assert streamed[0].endswith("data: [DONE]\n\n")
    assert [site.ask(one)[0] for one in (key, other_key)] == [429, 200]
    status, said, _ = site.route(door_environment=other, allow_disruption=True)
    assert status == 0, said
    assert site.pid("door") != pid
    has = Path(f"/proc/{site.pid('door')}/environ").read_bytes().decode().split("\0")
    assert "MALLOC_TRIM_THRESHOLD_=33554432" in has
    assert [site.ask(one)[0] for one in (key, other_key)] == [429, 200]


@contextmanager
def waiting_stream(site: DoorSite, key: str) -> Iterator[list[str]]:
    """Have a stream under way; it ends with the block, whose list holds its text from then on."""
    texts: list[str] = []
    site.server.finish.clear()
    before = len(site.server.bodies)
    body = {"stream": True, "max_tokens": 4, "waits": True}
    asking = threading.Thread(target=lambda: texts.append(site.ask(key, **body)[1]))
    asking.start()
    wait_until(lambda: len(site.server.bodies) > before)
    try:
        yield texts
        assert asking.is_alive(), "the stream has ended before its time"
    finally:
        site.server.finish.set()
        asking.join(60)


def look_at_secrets(site: DoorSite, said: str, keys: tuple[str, ...]) -> None:
    """The engines' key and digests of clients are for the service alone; client keys nowhere."""
    files = [path for path in site.directory.rglob("*") if path.is_file()]
    holding = {path for path in files if KEY in path.read_text(errors="replace")}
    assert holding == {site.key_file}
    for key in keys:
        assert key not in said
        assert not [path for path in files if key in path.read_text(errors="replace")]
    private = [site.cluster_dir / "door/settings/clients.map", site.certificate()]
    for path in (private[0], private[1].with_suffix(".key"), site.clients):
        assert path.stat().st_mode & 0o777 == 0o600, path


@pytest.mark.soak
def test_a_certificate_without_its_key_and_a_host_that_is_none_are_refused(
    site: DoorSite, capsys: pytest.CaptureFixture[str]
) -> None:
    if not site.clients.exists():
        add(site, capsys, "alice")
    status, said, _ = site.route(door_certificate_file="/x.crt", door_host="elsewhere")
    assert status != 0
    assert "door_host: check failed: the host of the door (and 1" in said
