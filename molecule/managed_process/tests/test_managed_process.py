"""Both supervisors run what was asked for, as it was asked for, and it really answers."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

PORTS = {"systemd": 8181, "supervisord": 8182}


@pytest.fixture(params=PORTS)
def supervisor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def managed(supervisor: str) -> dict[str, Any]:
    path = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "managed.json"
    found = {one["item"]["key"]: one for one in json.loads(path.read_text())}
    result: dict[str, Any] = found[supervisor]
    return result


def test_the_restarted_process_is_the_one_that_answers(
    host: Host, supervisor: str, managed: dict[str, Any], ask: Callable[..., tuple[int, Any]]
) -> None:
    assert managed["action"] == "restart"
    owner = host.check_output(
        f"ss --listening --tcp --processes --no-header 'sport = :{PORTS[supervisor]}'"
    )
    assert f"pid={managed['pid']}," in owner
    assert ask(f"http://127.0.0.1:{PORTS[supervisor]}/")[0] == 200


def test_it_got_its_user_environment_and_limits(host: Host, managed: dict[str, Any]) -> None:
    process = f"/proc/{managed['pid']}"
    assert host.process.get(pid=managed["pid"]).user == "vllm-molecule"
    environment = host.file(f"{process}/environ").content.split(b"\0")
    assert b"GREETING=50% of $HOME" in environment
    assert not [entry for entry in environment if entry.startswith((b"ANSIBLE", b"SSH"))]
    limits = host.file(f"{process}/limits").content_string
    assert "Max open files            512                  512" in limits


def test_its_log_says_what_it_did(host: Host, managed: dict[str, Any]) -> None:
    log = host.file(managed["log"])
    assert log.content[managed["log_offset"] :].count(b"GET / HTTP/1.1") >= 1
    # The service appends to what it was given; it cannot take it away or write it anew.
    assert (log.user, log.mode & 0o022) == ("root", 0)


def test_its_parent_is_the_supervisor_that_was_named(
    host: Host, supervisor: str, managed: dict[str, Any]
) -> None:
    group = host.file(f"/proc/{managed['pid']}/cgroup").content_string
    assert ("vllm-molecule-web-systemd.service" in group) is (supervisor == "systemd")
    unit = host.file("/etc/systemd/system/vllm-molecule-web-systemd.service")
    assert (unit.user, oct(unit.mode)) == ("root", "0o644")
