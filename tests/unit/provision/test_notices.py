"""Before a machine is taken back, or its capacity block ends, its engines are drained."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.emulators import imds
from tests.flows.clone import wait_until
from tests.ports import free_port
from vllm_ansible.node import launcher
from vllm_ansible.node.notices import BLOCK, SPOT, Metadata, Notice, Watch, answer, ask
from vllm_ansible.node.process import process
from vllm_ansible.provision.fleet import ENDED, READY, Machine
from vllm_ansible.provision.noticed import ends, measurements, rows
from vllm_ansible.provision.provider import provider

SERVER = Path(__file__).parents[2] / "slurm/slow_server.py"
NOW = 1_790_000_000.0
ACTION = '{"action": "terminate", "time": "2026-09-21T14:15:20Z"}'
AT = 1_790_000_120.0


class Service:
    """An instance's metadata service, with what it has answered."""

    def __init__(self, directory: Path) -> None:
        self.log: list[str] = []
        self.action = directory / "spot/instance-action"
        self.action.parent.mkdir()
        self.server = imds.server(directory, log=self.log)
        self.url = "http://127.0.0.1:{1}".format(*self.server.server_address)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "metadata").mkdir()
    made = Service(tmp_path / "metadata")
    yield made
    made.server.shutdown()
    made.server.server_close()


def launched(files: process.Files, spec: process.Spec) -> subprocess.Popen[bytes]:
    """Start what stands for an engine's server under the real launcher."""
    Path(files.directory).mkdir(exist_ok=True)
    labels = {"cluster": "r1", "engine": "chat", "stop_timeout_seconds": 30}
    record = process.new_record(spec, files, labels, "supervisord")
    process.save(files, {**record, "instance": uuid.uuid4().hex})
    return subprocess.Popen([sys.executable, launcher.__file__, files.record])


class Served:
    """A stand-in for an engine's server, under the real launcher; its answer takes long."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, free_port()
        spec = process.Spec((sys.executable, str(SERVER), str(self.port), str(directory)))
        self.launcher = launched(process.Files(str(directory), "chat-serve"), spec)
        self.wait_for("listens")

    @property
    def log(self) -> list[str]:
        path = self.directory / "log"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, words: str) -> None:
        wait_until(lambda: words in self.log, 120, words)

    def ask(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=120) as answer:
            return str(answer.read().decode())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "cluster").mkdir()
    made = Served(tmp_path / "cluster")
    yield made
    made.launcher.terminate()
    made.launcher.wait(120)


def settings(directory: Path, **more: Any) -> dict[str, Any]:
    server = {"host": "n1", "address": "127.0.0.1", "port": 1, "served_name": "m", "local": True}
    (directory / "state").mkdir(exist_ok=True)
    return {
        "host": "n1",
        "address": "127.0.0.1",
        "cluster_dir": str(directory / "cluster"),
        "state_dir": str(directory / "state"),
        "metadata": "",
        "ends_at": 0.0,
        "drain_seconds": 300.0,
        "engines": [{"name": "chat", "ranks": [0], "server": server, "peers": []}],
        **more,
    }


def state(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "state/state.json").read_text())
    return found


def test_the_metadata_service_is_asked_with_a_token_that_is_renewed(service: Service) -> None:
    metadata = Metadata(service.url)
    assert metadata.action() is None
    service.action.write_text(ACTION)
    metadata._token = "expired"  # noqa: S105  as after six hours
    assert metadata.action() == json.loads(ACTION)
    put, get = "PUT /latest/api/token 200", "GET /latest/meta-data/spot/instance-action "
    assert service.log == [put, f"{get}404", f"{get}401", put, f"{get}200"]


def test_a_spot_interruption_lets_the_server_finish_and_is_named(
    service: Service, served: Served, tmp_path: Path
) -> None:
    watch = Watch(settings(tmp_path, metadata=service.url))
    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(served.ask)
        served.wait_for("asked")
        watch.look()
        assert watch.asked == {} and "asked to end" not in served.log
        service.action.write_text(ACTION)
        watch.look()
        served.wait_for("asked to end")
        asked = dict(watch.asked)
        (served.directory / "go").touch()
        assert answered.result() == "answered"
    served.launcher.wait(120)
    watch.look()
    found = state(tmp_path)
    assert found["own"] == {"host": "n1", "cause": SPOT, "at": AT} == found["engines"]["chat"]
    assert asked.keys() == found["servers"].keys() == {"chat-serve"}
    assert found["servers"]["chat-serve"]["ended_at"] > 0
    # Once: it would end what it has to finish.
    assert served.log.count("asked to end") == 1


@pytest.mark.parametrize(
    "answer", ["{}", "[]", '{"action": "terminate", "time": "soon"}', "no JSON"]
)
def test_an_answer_that_is_no_notice_is_kept_and_ends_nothing(
    answer: str, service: Service, tmp_path: Path
) -> None:
    """It ended the watch, and then nothing saw the next notice."""
    service.action.write_text(answer)
    watch = Watch(settings(tmp_path, metadata=service.url))
    watch.look()
    assert watch.own is None and watch.error
    service.action.write_text(ACTION)
    watch.look()
    assert watch.own == Notice("n1", SPOT, AT) and watch.error == ""


def test_a_capacity_block_drains_by_the_clock_and_not_before(
    served: Served, tmp_path: Path
) -> None:
    now = [NOW]
    watch = Watch(settings(tmp_path, ends_at=NOW + 301), lambda: now[0])
    watch.look()
    assert watch.own is None and watch.asked == {}
    now[0] += 2
    watch.look()
    assert watch.own == Notice("n1", BLOCK, NOW + 301)
    served.wait_for("the server has ended")


def test_an_engine_is_drained_for_a_host_that_has_only_ranks_of_it(
    service: Service, served: Served, tmp_path: Path
) -> None:
    service.action.write_text(ACTION)
    port = free_port()
    elsewhere = {"host": "n1", "address": "127.0.0.1", "port": port, "local": False}
    engine = {"name": "chat", "ranks": [1], "server": elsewhere, "peers": []}
    (tmp_path / "n2").mkdir()
    second = Watch(
        settings(tmp_path / "n2", host="n2", metadata=service.url, engines=[engine]), lambda: NOW
    )
    peers = [{"host": "n2", "address": "127.0.0.1", "port": port}]
    engine = {**engine, "server": {**elsewhere, "local": True}, "peers": peers}
    now = [NOW]
    first = Watch(settings(tmp_path, engines=[engine]), lambda: now[0])
    first.look()
    assert first.heard == {}, "nothing listens there before a notice"
    second.look()
    first.look()
    assert first.heard == {"chat": Notice("n2", SPOT, AT)} and first.own is None
    served.launcher.wait(120)
    first.look()
    (told,) = measurements({"state": state(tmp_path)}, {}, "n1")
    clock = "2026-09-21 14:15:20 UTC"
    assert told["found"] == (
        f"chat: spot interruption, n2 ends at {clock}; chat-serve finished its requests in 0 s"
    )
    assert not told["ok"] and "site.yml" in told["fix"]


# No Python of ours, which the service's user may not reach.
SHELL = "trap 'exit 7' USR1; echo listens; while :; do sleep 0.2; done"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts what another user runs")
def test_a_service_user_drains_servers_whose_records_only_root_reads(
    nobodys: Path, as_nobody: Callable[..., Any]
) -> None:
    """As on hosts: the launcher is root's, servers and watch are of the service's user."""
    os.chown(nobodys, 0, 0)
    nobodys.chmod(0o755)
    given = settings(nobodys, ends_at=NOW)
    os.chown(given["state_dir"], *[pwd.getpwnam("nobody").pw_uid] * 2)
    names = {"chat-serve": "", "chat-serve-1": "--headless"}
    files = {name: process.Files(given["cluster_dir"], name) for name in names}
    Path(given["cluster_dir"]).mkdir()
    running = {}
    try:
        for name, flag in names.items():
            spec = process.Spec(("/bin/sh", "-c", SHELL, "serve", flag), user="nobody")
            running[name] = launched(files[name], spec)
        for one in files.values():
            log = Path(one.log)
            wait_until(lambda log=log: log.exists() and "listens" in log.read_text(), 120, one.name)

        def look() -> list[str]:
            readable = [one.record for one in files.values() if os.access(one.record, os.R_OK)]
            watch = Watch(given, lambda: NOW)
            watch.look()
            return [*readable, *watch.asked]

        assert as_nobody(look) == ["chat-serve"]
        assert running["chat-serve"].wait(120) == 7
        assert running["chat-serve-1"].poll() is None, "it only computes for another host"
    finally:
        for one in running.values():
            one.terminate()
            one.wait(120)


def test_what_starts_after_the_machine_has_ended_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    now = [AT + 30]
    watch = Watch(settings(tmp_path), lambda: now[0])
    watch.heard["chat"] = Notice("n2", SPOT, AT)
    assert watch._current("chat") is not None
    now[0] = AT + 61
    assert watch._current("chat") is None


@pytest.mark.parametrize("said", [b"HTTP/1.0 200 OK\r\n\r\n", b"vllm-ansible notice [1]\n", b""])
def test_what_else_listens_there_is_no_notice(said: bytes) -> None:
    with answer("127.0.0.1", port := free_port(), said):
        assert ask("127.0.0.1", port) is None
    assert ask("127.0.0.1", port) is None


def test_a_metadata_service_that_fails_is_said_and_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster").mkdir()
    watch = Watch(settings(tmp_path, metadata=f"http://127.0.0.1:{free_port()}"))
    watch.look()
    watch.look()
    assert "refused" in state(tmp_path)["error"]
    assert capsys.readouterr().out.count("the metadata service") == 1


def test_status_says_it_until_the_engine_serves_again() -> None:
    notice = {"host": "n2", "cause": SPOT, "at": AT}
    asked = {"chat-serve": {"pid": 7, "start_time": 1, "asked_at": NOW, "ended_at": 0.0}}
    looked = {"state": {"engines": {"chat": notice}, "servers": asked}}
    runs = {"chat-serve": {"running": True, "pid": 7}}
    (row,) = rows(looked, runs)
    assert row == "drained: chat: spot interruption, n2 ends at 2026-09-21 14:15:20 UTC"
    assert measurements(looked, runs, "n1")[0]["found"].endswith("chat-serve finishes its requests")
    assert rows(looked, {"chat-serve": {"running": True, "pid": 8}}) == []
    assert rows({"state": {}}, runs) == measurements({"state": {}}, runs, "n1") == []


def machine(slot: int, status: str, **more: Any) -> Machine:
    return Machine(f"i-{slot}", slot, status, "p5.48xlarge", "us-east-2a", 1, "l", 0.0, **more)


def test_every_command_names_first_what_ends_by_itself() -> None:
    lost = machine(2, ENDED, lost="interrupted by AWS, as spot machines are")
    told = ends("AWS", True, "r1", [lost, machine(1, "preempted"), machine(0, READY)], NOW)
    assert told == [
        "AWS takes r1-1 (i-1) back within two minutes; its engines are drained",
        "r1-2 (i-2) was interrupted by AWS, as spot machines are",
    ]
    # Nothing looks for notices at a provider that gives none.
    drained = {name: provider(name).notices for name in ("aws", "lambda", "runpod")}
    assert drained == {"aws": True, "lambda": False, "runpod": False}
    told = ends("Lambda", drained["lambda"], "r1", [machine(1, "preempted")], NOW)
    assert told == ["Lambda takes r1-1 (i-1) back"]
    assert ends("AWS", True, "r1", [lost, machine(2, READY)], NOW) == []
    block = [machine(slot, READY, ends_at=NOW + 3601) for slot in (0, 1)]
    assert ends("AWS", True, "r1", block, NOW) == []
    (said,) = ends("AWS", True, "r1", block, NOW + 1800)
    clock = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(NOW + 3601))
    assert said == (
        f"AWS ends 2 machines from {clock} on, in 30 minutes: its capacity block is over then"
    )


def test_the_program_has_all_of_its_parts_where_the_role_puts_them(
    tmp_path: Path, service: Service
) -> None:
    """As on a host: nothing of ours is installed there."""
    root = Path(__file__).parents[3]
    node = tmp_path / "program/node"
    for room in ("slurm", "watchdog"):
        (node / room).mkdir(parents=True)
    source = root / "src/vllm_ansible/node"
    text = (root / "roles/provision/vars/main.yml").read_text()
    names = text.partition("+ ['")[2].partition("']")[0].split("', '")
    assert "notices.py" in names
    for name in names:
        (node / name).write_text((source / name).read_text())
    entry = root / "roles/provision/files/notices.py"
    (tmp_path / "program/notices.py").write_text(entry.read_text())
    (tmp_path / "cluster").mkdir()
    given = tmp_path / "settings.json"
    given.write_text(json.dumps(settings(tmp_path, metadata=service.url)))
    command = [sys.executable, "-s", "-E", str(tmp_path / "program/notices.py"), str(given)]
    running = subprocess.Popen(command, env={"PATH": os.environ["PATH"]})
    try:
        there = (tmp_path / "state/state.json").exists
        wait_until(lambda: there() and state(tmp_path)["error"] == "", 120, "a look")
        assert state(tmp_path)["own"] is None
    finally:
        running.kill()
        running.wait()
