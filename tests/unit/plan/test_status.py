"""`playbooks/status.yml` over records of processes that ended: what died fails it, and says why."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.emulators.kv_front import Front
from tests.flows.clone import Clone
from vllm_ansible.node import launcher
from vllm_ansible.plan.dynamo import REQUESTS

ROOT = Path(__file__).parents[3]
LOG = """\
(APIServer pid=71) INFO 11-23 10:00:00 [launcher.py:58] Route: /health, Methods: GET
(APIServer pid=71) ERROR 11-23 10:00:09 [core_client.py:600] Engine core proc EngineCore_DP0 died \
unexpectedly, shutting down client.
(APIServer pid=71) ERROR 11-23 10:00:09 [async_llm.py:700] AsyncLLM output_handler failed.
(APIServer pid=71) INFO:     Application shutdown complete.
"""
HELD = "it is not started again: 3 restarts were made"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Return the directory of a cluster whose server ended with status 0, as vLLM's does."""
    directory = tmp_path / "c1"
    (directory / "processes").mkdir(parents=True)
    (directory / "logs").mkdir()
    log = directory / "logs/chat-serve.log"
    log.write_text(LOG)
    record = {
        **{"name": "chat-serve", "engine": "chat", "cluster": "c1", "supervisor": "supervisord"},
        **{"digest": "d", "argv": ["vllm"], "log": str(log), "log_offset": 0},
        "state_path": str(directory / "processes/chat-serve.state.json"),
    }
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    gone = {"pid": None, "start_time": None}
    state = {"instance": "i", "boot_id": boot, "launcher": gone, "process": gone}
    state |= {"started_at": 1.0, "ended_at": 9.0, "exit_status": 0}
    lives = launcher.identity(os.getpid())
    restarts = {**record, "name": "watchdog-restarts", "engine": ""}
    alive = {**state, "launcher": lives, "process": lives, "exit_status": None}
    for name, content in (
        ("processes/chat-serve", record),
        ("processes/chat-serve.state", state),
        ("processes/watchdog-restarts", restarts),
        ("processes/watchdog-restarts.state", alive),
        ("watchdog/restarts/state", {"at": 1.0, "engines": {"chat": {"held": HELD}}}),
    ):
        path = directory / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return directory


def test_what_died_is_told_with_its_first_cause_until_it_is_stopped(
    cluster: Path, tmp_path: Path
) -> None:
    host = {"ansible_connection": "local", "ansible_python_interpreter": warm.python()}
    variables = {"cluster_name": "c1", "cluster_dir": str(cluster), "privileges": "none"}
    groups = {"gpu": {"hosts": {"h-01": host}, "vars": variables}}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": groups}}))
    clone = Clone(tmp_path / "clone")
    ran = clone.run(inventory, playbook="playbooks/status.yml")
    assert ran.status == 2, ran.output
    assert f"restarts: chat: {HELD}" in ran.evidence("status")[0]["summary"]
    failure = ran.failure
    assert failure["msg"] == ("chat does not run: on h-01: chat-serve ended with exit status 0")
    assert failure["found"] == (
        "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client."
    )
    assert failure["where"] == "h-01 chat-serve (APIServer), line 2 of its log"
    record = cluster / "processes/chat-serve.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "stopped": True}))
    ran = clone.run(inventory, playbook="playbooks/status.yml")
    assert ran.status == 0, ran.output
    summary = ran.evidence("status")[0]["summary"]
    assert "chat-serve: stopped" in summary and HELD not in summary


def test_the_next_run_says_of_what_it_died_before_it_is_started_again(
    cluster: Path, play: Any
) -> None:
    tasks = yaml.safe_load((ROOT / "roles/ray/tasks/change.yml").read_text())
    before = tasks[0]
    assert tasks[1]["name"] == "Stop servers", "it comes before any change"
    look = {
        "name": "Look",
        "processes_info": {"cluster": "c1", "cluster_dir": str(cluster)},
        "register": "looked",
    }
    keep = {"name": "Keep", "set_fact": {"plan_processes": "{{ looked.processes }}"}}
    site = {"name": "h-01", "cluster_dir": str(cluster), "run_dir": str(cluster)}
    plan = {"engines": [{"name": "chat", "hosts": ["h-01"], "executor": "mp", "index": 0}]}
    host = {"cluster_name": "c1", "site_host": site, "site_plan": plan}
    played = play([look, keep, before], {"h-01": host})
    whole = played["Warn of what had died, with its first cause"]
    (told,), (warning,) = whole["results"], whole["warnings"]
    assert not told.get("failed")
    assert told["found"].endswith("EngineCore_DP0 died unexpectedly, shutting down client.")
    # As console and report show it.
    words = "chat had died and is started again: on h-01: chat-serve ended with exit status 0"
    assert str(warning).startswith(words)
    assert "h-01 chat-serve (APIServer), line 2 of its log" in str(warning)


def test_dynamo_is_asked_which_engines_it_knows(play: Any) -> None:
    """All processes of h-02 run, and one of its sidecars has not registered."""
    tasks = [
        one
        for part in yaml.safe_load((ROOT / "playbooks/status.yml").read_text())
        for one in part.get("tasks", ())
        if "Dynamo" in one["name"]
    ]

    def host(name: str, front: Front, running: bool = True) -> dict[str, Any]:
        ports = {"gcs": front.port - 3, "worker_first": front.port + 17}
        front.requests = front.port + 17 + REQUESTS
        engine = {"name": "chat", "front": "dynamo", "hosts": [name], "ports": ports}
        return {
            "site_host": {"cluster_dir": "/c"},
            "site_hosts": [],
            "site_plan": {"engines": [{**engine, "layout": {"data": 2}}]},
            "__site_processes": {"processes": {"chat-dynamo": {"running": running}}},
        }

    with Front(engines=2) as whole, Front(engines=1) as half:
        hosts = {
            "h-01": host("h-01", whole),
            "h-02": host("h-02", half),
            # Its processes say enough.
            "h-03": host("h-03", half, running=False),
        }
        judged = play(tasks, hosts).tasks["Judge that Dynamo knows every engine"]
        assert whole.asked == half.asked == 0
    (good,), (bad,) = judged["h-01"]["results"], judged["h-02"]["results"]
    assert good["evidence"]["summary"] == (
        f"chat: Dynamo at {whole.url} sends requests to 2 of 2 engines, 0 KV events applied so far"
    )
    assert bad.get("failed", True) and "every engine known to Dynamo" in bad["msg"]
    assert (bad["expected"], bad["found"]) == ("2 engines", "1")
    assert "/c/logs/chat-etcd.log" in bad["fix"]
    assert judged["h-03"].get("results", []) == []
