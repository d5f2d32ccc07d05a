"""Each host has a watchdog of the service user that sees the engine serve and finds nothing."""

from __future__ import annotations

import json

from testinfra.host import Host

UNIT = "vllm-molecule-watchdog.service"
STATE = "/run/vllm-molecule/watchdog/state.json"


def watched(host: Host) -> bool:
    """Tell whether a host has a part of an engine: this inventory's is on the first alone."""
    return bool(host.backend.get_hostname() == "lab1")


def test_it_runs_as_the_service_and_sees_the_engine_serve(host: Host) -> None:
    assert host.service(UNIT).is_running == watched(host)
    if not watched(host):
        assert not host.file(STATE).exists
        return
    shown = host.check_output(f"systemctl show --property=User {UNIT}")
    assert shown == "User=vllm-molecule"
    state = json.loads(host.file(STATE).content_string)
    assert set(state["engines"].values()) == {"serving"}
    assert state["findings"] == []


def test_it_opens_no_port(host: Host) -> None:
    pid = host.check_output(f"systemctl show --property=MainPID --value {UNIT}")
    assert (int(pid) > 0) == watched(host)
    assert f"pid={pid}," not in host.check_output("ss -ltnp")
