"""Each host of the engine has a watchdog of the service user that finds nothing amiss."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from testinfra.host import Host

STATE = "/run/vllm-molecule/watchdog/state.json"


def test_it_runs_as_the_service(family: Callable[[str], list[dict[str, Any]]]) -> None:
    assert [one["user"] for one in family("watchdog")] == ["vllm-molecule"]


def test_it_sees_the_engine_at_work_and_finds_nothing(host: Host) -> None:
    # An engine that is given no time for a while is a finding, until it answers again.
    end = time.monotonic() + 180
    while True:
        state = json.loads(host.file(STATE).content_string)
        # Where it has ranks alone, too: each host asks the engine's server itself.
        found = (state["engines"], state["findings"])
        if found == ({"chat": "serving"}, []) or time.monotonic() > end:
            break
        time.sleep(1)
    assert found == ({"chat": "serving"}, [])


def test_it_opens_no_port(host: Host, family: Callable[[str], list[dict[str, Any]]]) -> None:
    (found,) = family("watchdog")
    assert f"pid={found['pid']}," not in host.check_output("ss -ltnp")
