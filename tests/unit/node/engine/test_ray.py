"""Answers of real HTTP servers, in the form of Ray's state API (Ray 2.60)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from vllm_ansible.node.engine.ray import NODES_PATH, ask_nodes, missing, parse_nodes

TOKEN = "t-abcdef"  # noqa: S105 - a token of nobody


def node(address: str, devices: float | None = 1.0, **more: Any) -> dict[str, Any]:
    resources = {"CPU": 4.0, **({"GPU": devices} if devices else {})}
    return {
        "node_id": "d1f0",
        "node_ip": address,
        "is_head_node": False,
        "state": "ALIVE",
        "state_message": None,
        "resources_total": resources,
        **more,
    }


def listed(*nodes: dict[str, Any]) -> dict[str, Any]:
    result = {"total": len(nodes), "result": list(nodes), "partial_failure_warning": ""}
    return {"result": True, "msg": "", "data": {"result": result}}


def dead(address: str, message: str | None = None) -> dict[str, Any]:
    return node(address, state="DEAD", state_message=message, resources_total=None)


def test_nodes_are_read_with_what_vllm_counts() -> None:
    answer = listed(node("10.0.0.1", 2.0, is_head_node=True), node("10.0.0.2", None))
    assert parse_nodes(answer) == [
        {"address": "10.0.0.1", "alive": True, "head": True, "devices": 2, "message": ""},
        {"address": "10.0.0.2", "alive": True, "head": False, "devices": 0, "message": ""},
    ]
    (lost,) = parse_nodes(listed(dead("10.0.0.3", "health check failed")))
    assert (lost["alive"], lost["devices"], lost["message"]) == (False, 0, "health check failed")


PLAN = {
    "n1": {"address": "10.0.0.1", "devices": 1},
    "n2": {"address": "10.0.0.2", "devices": 2},
}


@pytest.mark.parametrize(
    ("nodes", "whys"),
    [
        ([node("10.0.0.1"), node("10.0.0.2", 2)], {}),
        ([node("10.0.0.1"), node("10.0.0.2", 4)], {}),
        ([node("10.0.0.1")], {"n2": "nothing joined from 10.0.0.2"}),
        (
            [node("10.0.0.1"), node("10.0.0.2", 1)],
            {"n2": "joined with 1 devices, 2 are planned"},
        ),
        (
            [node("10.0.0.1"), dead("10.0.0.2", "raylet died")],
            {"n2": "joined and died: raylet died"},
        ),
        ([node("10.0.0.1"), dead("10.0.0.2")], {"n2": "joined and died: no reason given"}),
        # It died, was started again and is counted.
        ([node("10.0.0.1"), dead("10.0.0.2"), node("10.0.0.2", 2)], {}),
        (
            [node("10.0.0.1"), node("192.168.1.2", 2)],
            {
                "n2": "nothing joined from 10.0.0.2; joined from addresses that are not planned: "
                "192.168.1.2"
            },
        ),
        ([], {f"n{n}": f"nothing joined from 10.0.0.{n}" for n in (1, 2)}),
    ],
)
def test_who_is_missing_is_named_with_the_reason(nodes: Any, whys: dict[str, str]) -> None:
    found = missing(PLAN, parse_nodes(listed(*nodes)))
    assert {one["host"]: one["why"] for one in found} == whys


def test_the_dashboard_is_asked_with_the_token(serve: Any) -> None:
    server = serve(lambda request: (200, listed(node("10.0.0.1"))))
    found = ask_nodes(server.port, TOKEN)
    assert found["error"] == "" and [one["address"] for one in found["nodes"]] == ["10.0.0.1"]
    (request,) = server.requests
    assert (request.path, request.key) == (NODES_PATH, f"Bearer {TOKEN}")


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (401, "Unauthorized", "HTTP 401: the Ray token was refused"),
        (403, "Forbidden", "HTTP 403: the Ray token was refused"),
        (500, {"result": False, "msg": "no GCS", "data": {"result": None}}, "HTTP 500: "),
        (200, "<html>", "JSONDecodeError: "),
        (200, {"result": False, "msg": "", "data": {"result": None}}, "TypeError: "),
        (200, {"status": 200}, "KeyError: 'data'"),
        (200, None, "IncompleteRead: "),
    ],
)
def test_a_dashboard_that_does_not_answer_is_an_error_and_no_node(
    serve: Any, status: int, answer: Any, error: str
) -> None:
    found = ask_nodes(serve(lambda request: (status, answer)).port, TOKEN)
    assert found["nodes"] == [] and found["error"].startswith(error)


def test_a_dashboard_that_is_not_there_is_an_error() -> None:
    assert "Connection refused" in ask_nodes(free_port(), TOKEN)["error"]


def test_the_module_takes_the_token_from_its_file(
    run_module: Callable[..., dict[str, Any]], serve: Any, tmp_path: Path
) -> None:
    token_file = tmp_path / "ray_token"
    server = serve(lambda request: (200 if request.key == f"Bearer {TOKEN}" else 401, listed()))
    args = {"dashboard_port": server.port, "token_file": str(token_file)}
    unreadable = run_module("ray_nodes_info", args, [])
    assert unreadable["nodes"] == [] and unreadable["error"].startswith("no Ray token: ")
    assert server.requests == []
    token_file.write_text(f"{TOKEN}\n")
    for check in (False, True):
        result = run_module("ray_nodes_info", args, [], check=check)
        assert result["error"] == "" and not result["changed"]
        assert TOKEN not in str(result)
    token_file.write_text("another")
    refused = run_module("ray_nodes_info", args, [])
    assert refused["error"] == "HTTP 401: the Ray token was refused"
