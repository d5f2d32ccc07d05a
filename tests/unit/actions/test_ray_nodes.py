"""The wait for Ray, against real HTTP servers that speak as Ray's state API; a real play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vllm_ansible.node import launcher

TOKEN = "t-abcdef"  # noqa: S105 - a token of nobody
PLAN = {"n1": {"address": "10.0.0.1", "devices": 1}, "n2": {"address": "10.0.0.2", "devices": 1}}


def nodes(*addresses: str) -> dict[str, Any]:
    found = [
        {"node_ip": one, "state": "ALIVE", "state_message": None, "resources_total": {"GPU": 1.0}}
        for one in addresses
    ]
    return {"result": True, "msg": "", "data": {"result": {"result": found}}}


def ended(cluster: Path) -> None:
    """Write what supervisord's launcher leaves of a Ray node that has ended."""
    none = {"pid": 1 << 22, "start_time": 1}
    record = {
        **{"cluster": "demo", "engine": "a", "argv": ["ray"], "digest": "d"},
        **{"supervisor": "supervisord", "log": str(cluster / "a-ray.log"), "log_offset": 0},
    }
    state = {
        **{"boot_id": launcher.boot_id(), "launcher": none, "process": none},
        **{"instance": "i", "started_at": 1.0, "exit_status": 2},
    }
    (cluster / "processes").mkdir(parents=True)
    (cluster / "processes/a-ray.json").write_text(json.dumps(record))
    (cluster / "processes/a-ray.state.json").write_text(json.dumps(state))


def test_a_wait_ends_when_all_have_joined_or_nothing_moves(
    play: Any, serve: Any, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "run").mkdir()
    looks = iter([nodes("10.0.0.1"), nodes("10.0.0.1", "10.0.0.2")])
    servers = {
        "joins": serve(lambda request: (200, next(looks))),
        "lacks": serve(lambda request: (200, nodes("10.0.0.1", "192.168.1.2"))),
        "refuses": serve(lambda request: (401, "Unauthorized")),
        "ended": serve(lambda request: (503, "")),
    }
    ended(tmp_path / "ended")
    arguments = {
        "engine": "a",
        "dashboard_port": "{{ port }}",
        "token_file": str(tmp_path / "token"),
        "cluster": "demo",
        "cluster_dir": f"{tmp_path}/{{{{ inventory_hostname }}}}",
        "expected": PLAN,
        "silence_seconds": 0.5,
    }
    played = play(
        [
            {"name": "wait", "ray_nodes": arguments},
            {
                "name": "check mode",
                "ray_nodes": arguments,
                "check_mode": True,
                "when": "inventory_hostname == 'lacks'",
            },
            {
                "name": "formed before",
                "ray_nodes": {**arguments, "formed": True},
                "when": "inventory_hostname == 'lacks'",
            },
        ],
        {name: {"port": server.port} for name, server in servers.items()},
        {"VLLM_ANSIBLE_RUN_DIR": str(tmp_path / "run")},
    )
    results = played.tasks["wait"]
    assert not any(one["changed"] or one.get("failed") for one in results.values())

    assert results["joins"]["ready"]
    assert results["joins"]["evidence"] == {
        "gate": "cluster",
        "summary": "a: Ray counts all 2 devices, at 10.0.0.1, 10.0.0.2",
        "values": {"engine": "a", "hosts": PLAN},
    }
    assert {request.key for request in servers["joins"].requests} == {f"Bearer {TOKEN}"}

    lacks = results["lacks"]
    assert not lacks["ready"] and "evidence" not in lacks
    assert lacks["missing"] == [
        {
            "host": "n2",
            "why": "nothing joined from 10.0.0.2; joined from addresses that are not planned: "
            "192.168.1.2",
        }
    ]
    assert lacks["expected"] == "2 hosts in the Ray cluster of a" and lacks["where"] == "n2"
    assert lacks["found"].startswith("missing n2. n2: nothing joined")
    asked = len(servers["lacks"].requests)
    assert asked >= 3  # it has waited; check mode looked once more

    formed = played.tasks["formed before"]["lacks"]
    assert formed["ready"] and formed["evidence"]["summary"] == "a: Ray as it was formed, on n1, n2"

    assert not results["refuses"]["ready"]
    assert results["refuses"]["found"] == (
        "the head does not answer: HTTP 401: the Ray token was refused"
    )
    # The dead are not waited for.
    assert results["ended"]["found"].endswith("a-ray ended with exit status 2")
    assert len(servers["ended"].requests) == 1

    unwaited = played.tasks["check mode"]["lacks"]
    assert unwaited["ready"] and not unwaited["waited"] and "evidence" not in unwaited

    assert TOKEN not in str(played)
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    shown = {(one["text"], one["done"], one["total"]) for one in events}
    assert ("a: hosts joined to Ray", 1, 2) in shown


def test_one_look_lasts_until_another_number_of_nodes_is_there(
    run_module: Any, serve: Any, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    joined = [nodes("10.0.0.1"), nodes("10.0.0.1"), nodes("10.0.0.1", "10.0.0.2")]
    server = serve(lambda request: (200, joined[len(server.requests) - 1]))
    args = {"dashboard_port": server.port, "token_file": str(tmp_path / "token")}
    look = run_module("ray_nodes_info", {**args, "known_nodes": 1, "wait_seconds": 600}, [])
    assert (len(look["nodes"]), len(server.requests)) == (2, 3)
