"""The planner's process of an engine, run by the real podman under the project's supervisor."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import signal
import sys
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from vllm_ansible.node.image import install
from vllm_ansible.node.image.command import TEMPORARY
from vllm_ansible.node.image.tool import Tool
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan
from vllm_ansible.plan.processes import ProcessSpec, wanted_processes

from ..conftest import Host, host, node, wait_until
from .conftest import Report, containers, containers_tool

__all__ = ["host", "node"]
KEY = "a-key-that-nobody-shall-see"
NOBODY = pwd.getpwnam("nobody")


class Engine:
    """One engine in an image on one host."""

    def __init__(self, host: Host, spec: ProcessSpec) -> None:
        self.host, self.spec = host, spec
        self.name = next(one.partition("=")[2] for one in spec.argv if one.startswith("--name="))
        self.port = int(spec.argv[spec.argv.index("--port") + 1])

    def manage(self, state: str = "started", **more: Any) -> dict[str, Any]:
        wanted = asdict(self.spec) if state == "started" else None
        return self.host.manage(wanted, state, stop_seconds=10, **more)

    def ask(self, key: str = KEY) -> dict[str, Any]:
        """Return what the server tells of itself, or its refusal, as soon as it answers."""
        headers = {"Authorization": f"Bearer {key}"}

        def asked() -> Any:
            line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                line.request("GET", "/v1/models", headers=headers)
                said = line.getresponse()
                return json.load(said) if said.status == 200 else {"status": said.status}
            except OSError:
                return None
            finally:
                line.close()

        found: dict[str, Any] = wait_until(asked, 60)
        return found

    def log(self) -> str:
        return (self.host.cluster_dir / "logs/e0-serve.log").read_text()


@pytest.fixture
def node_python() -> str:
    """One Python is enough here: what both run, the tests of the supervisor try."""
    return sys.executable


@pytest.fixture
def engine(
    host: Host, wanted: dict[str, Any], tool: Tool, report: Report, tmp_path: Path
) -> Iterator[Engine]:
    """Give an engine whose image was brought, and which leaves no container."""
    manifest = install.bring(wanted, tool, report)
    image = {**wanted["settings"], **manifest["image"]}
    port = free_port()
    cluster = f"t{uuid.uuid4().hex[:8]}"
    inventory = {"name": "chat", "model": "/models/m", "executor": "mp", "port": port}
    plan = make_plan(cluster, parse_engines([inventory]), [Capacity.whole("h", "cpu", 1)])
    site = {
        **{"name": "h", "accelerator": "cpu", "address": "127.0.0.1", "interface": "lo"},
        **{"cluster_dir": str(host.cluster_dir), "run_dir": str(tmp_path / "run")},
        **{"service_user": "nobody", "cores": 1},
    }
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    own = host.cluster_dir / "engines/chat"
    for writable in (own / "cache", tmp_path / "run/t0"):
        writable.mkdir(parents=True)
        os.chown(writable, NOBODY.pw_uid, NOBODY.pw_gid)
    (own / "key.yaml").write_text(f"api-key: {KEY}\n")
    os.chown(own / "key.yaml", NOBODY.pw_uid, NOBODY.pw_gid)
    (own / "key.yaml").chmod(0o600)
    ready = {
        "directory": wanted["directory"],
        "fingerprint": manifest["fingerprint"],
        "image": image,
    }
    models = {"h": {"chat": {"path": str(model), "fingerprint": "w"}}}
    (spec,) = wanted_processes(plan, {"h": site}, {"h": ready}, models)["h"]
    tried = json.dumps([str(model), str(own), str(own / "cache"), "/usr", TEMPORARY])
    argv = list(spec.argv)
    argv.insert(argv.index("--workdir=/"), f"--env=TRY_TO_WRITE={tried}")
    made = Engine(host, replace(spec, argv=tuple(argv)))
    yield made
    made.manage("absent")
    assert containers(made.name) == []


def test_an_engine_answers_from_its_image_with_no_more_than_it_needs(
    engine: Engine, tmp_path: Path
) -> None:
    first = engine.manage()
    assert first["action"] == "start"
    told = engine.ask()
    assert engine.ask(key="wrong") == {"status": 401}
    assert told["uid"] == NOBODY.pw_uid
    own = engine.host.cluster_dir / "engines/chat"
    refused = "Read-only file system"
    assert told[str(tmp_path / "model")] == told[str(own)] == told["/usr"] == refused
    assert told[str(own / "cache")] == told[TEMPORARY] == "written"
    assert (own / "cache/try").stat().st_uid == NOBODY.pw_uid
    (running,) = json.loads(containers_tool("container", "inspect", engine.name))
    seen = json.dumps(running)
    assert KEY not in seen
    assert not running.get("EffectiveCaps")
    assert not running["HostConfig"]["Privileged"]
    assert not running["HostConfig"]["Devices"]
    assert told["capabilities"] == "0000000000000000"
    # Looking at it again changes nothing.
    assert engine.manage()["action"] == "none"
    assert engine.manage("stopped")["action"] == "stop"
    assert "ended in good order" in engine.log()
    assert containers(engine.name) == []


def test_a_container_that_was_killed_is_noticed_and_started_again(engine: Engine) -> None:
    engine.manage()
    engine.ask()
    inside = json.loads(containers_tool("container", "inspect", engine.name))[0]["State"]["Pid"]
    os.kill(inside, signal.SIGKILL)
    wait_until(lambda: not engine.host.processes()["e0-serve"]["running"])
    assert "SIGKILL" in engine.host.processes()["e0-serve"]["why"]
    wait_until(lambda: containers(engine.name) == [])
    again = engine.manage()
    assert again["action"] == "start"
    engine.ask()


def test_a_client_that_was_killed_leaves_no_container(engine: Engine) -> None:
    client = engine.manage()["pid"]
    engine.ask()
    os.kill(client, signal.SIGKILL)
    wait_until(lambda: not engine.host.processes()["e0-serve"]["running"])
    wait_until(lambda: containers(engine.name) == [])


def test_a_start_clears_what_a_killed_supervisor_left(engine: Engine) -> None:
    launcher = engine.manage()
    engine.ask()
    state = engine.host.state()
    os.kill(state["launcher"]["pid"], signal.SIGKILL)
    wait_until(lambda: not engine.host.processes()["e0-serve"]["running"])
    again = engine.manage()
    assert again["action"] == "start"
    assert again["pid"] != launcher["pid"]
    engine.ask()
    assert len(containers(engine.name)) == 1
