"""What the module tells of a real router's ranks, and how it drains one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from vllm_ansible.plan.routers import measurements

from .running import Running, wait_until


def test_a_rank_is_drained_once_and_let_in_again(
    started: Callable[..., Running], run_module: Callable[..., dict[str, Any]]
) -> None:
    running = started(ranks=2)
    socket = str(running.run_dir / "admin.sock")

    def told(state: str, rank: str = "rank-0", **how: Any) -> dict[str, Any]:
        given = {"socket": socket, "rank": rank, "state": state}
        return run_module("router_ranks", given, [], **how)

    looked = run_module("router_ranks", {"socket": socket}, [])
    assert [(one["name"], one["proven"], one["requests"]) for one in looked["ranks"]] == [
        ("rank-0", True, 0),
        ("rank-1", True, 0),
    ]
    assert told("drain", check=True)["changed"]
    assert running.up() == {"rank-0", "rank-1"}
    assert told("drain")["changed"]
    assert running.rows()["rank-0"]["status"].startswith("DRAIN")
    assert not told("drain")["changed"]
    assert told("ready")["changed"]
    assert running.up() == {"rank-0", "rank-1"}
    refused = told("drain", rank="rank-9")
    assert refused["failed"] and refused["expected"] == "rank-0, rank-1"


def test_a_rank_that_is_down_does_not_hold_and_says_why(
    started: Callable[..., Running], run_module: Callable[..., dict[str, Any]]
) -> None:
    running = started(ranks=2)
    running.signal("rank-1", signal.SIGKILL)
    wait_until(lambda: running.up() == {"rank-0"})
    found = run_module("router_ranks", {"socket": str(running.run_dir / "admin.sock")}, [])
    wanted = [{"name": f"rank-{one}", "address": "127.0.0.1", "port": one} for one in range(3)]
    first, second, third = measurements(found, wanted, "here", "log")
    assert first["ok"]
    assert not second["ok"] and second["found"].startswith("DOWN (")
    assert not third["ok"] and third["found"] == "the router does not know it"
