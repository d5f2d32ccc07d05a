"""The thin plugins over the planner, played as roles play them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"


CPU = {"kind": "cpu", "count": 1, "pci": [], "driver_version": ""}


def look(number: int, accelerators: dict[str, Any]) -> dict[str, Any]:
    address = {"interface": "eth0", "address": f"10.0.0.{number}", "prefix": 24}
    return {
        "host": {
            "uid": 0,
            "user": "root",
            "home": "/root",
            "sudo": False,
            "pid1": "systemd",
            "architecture": "x86_64",
            "distribution": "debian",
            "distribution_version": "12",
            "python": "3.11.2",
            "cores": 4,
            "memory_bytes": 2**33,
            "disk_free": {"root": 2**33, "none": 2**30},
            "boot_id": "b",
            "missing_libraries": ["numa"],
            "accelerators": accelerators,
            "addresses": [{**address, "network": "10.0.0.0/24", "kind": "physical"}],
        }
    }


def play(directory: Path, found: dict[str, Any] = CPU, **variables: Any) -> dict[str, Any]:
    """Play all three plugins and return what each answered."""
    hosts = {
        f"n{number}": {
            "__site_look": look(number, found),
            "environment_installed": {"directory": "/e/abc", "fingerprint": "f"},
            "weights_models": {"a": {"path": "/m", "fingerprint": "w"}},
            "looked": {"processes": {}},
        }
        for number in (1, 2)
    }
    hosts["n1"]["models_dir"] = "/data"
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    group = {"hosts": hosts, "vars": {**here, **variables}}
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"gpu": group}}}))
    tasks: list[dict[str, Any]] = [
        {"site_facts": {}, "register": "facts", "run_once": True},
        {"set_fact": {"site_host": "{{ facts.hosts[inventory_hostname] }}"}},
        {
            "plan_layout": {"cluster": "{{ cluster_name }}", "engines": "{{ engines }}"},
            "register": "layout",
            "run_once": True,
        },
        {
            "engine_decision": {"plan": "{{ layout.plan }}", "looks": "looked"},
            "register": "decision",
            "run_once": True,
        },
        {
            "copy": {
                "content": "{{ [facts, layout, decision] | to_json }}",
                "dest": str(directory / "answers.json"),
            },
            "run_once": True,
        },
    ]
    book = [{"hosts": "gpu", "gather_facts": False, "tasks": tasks}]
    (directory / "play.yml").write_text(yaml.safe_dump(book))
    done = subprocess.run(
        [PLAYBOOK, "-i", directory / "hosts.yml", directory / "play.yml"],
        cwd=ROOT,
        env={**os.environ, "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = ("facts", "layout", "decision")
    answers = json.loads((directory / "answers.json").read_text())
    return dict(zip(names, answers, strict=True))


def test_from_looks_to_steps(tmp_path: Path) -> None:
    engine = {"name": "a", "model": "o/m", "layout": {"pipeline": 2}}
    answers = play(tmp_path, cluster_name="r1", engines=[engine])

    facts = answers["facts"]["hosts"]
    assert facts["n2"]["address"] == "10.0.0.2"
    assert facts["n1"]["models_dir"] == "/data"
    assert facts["n2"]["models_dir"] == "/opt/vllm-ansible/r1/models"
    assert facts["n2"]["missing_libraries"] == ["numa"]
    assert facts["n2"]["driver_version"] == ""

    layout = answers["layout"]
    assert layout["differs"]
    assert layout["evidence"]["summary"] == "a: TP1 PP2 on n1, n2 (ray, port 8000)"
    assert layout["evidence"]["values"]["idle_hosts"] == []
    assert not layout.get("warnings")
    kept = sorted((tmp_path / "runs").glob("*/plan.json"))
    assert json.loads(kept[0].read_text()) == layout["plan"]

    steps = answers["decision"]["hosts"]
    told = {
        host: [f"{phase} {step['name']}" for phase, listed in phases.items() for step in listed]
        for host, phases in steps.items()
    }
    assert told == {
        "n1": ["start_heads a-ray", "start_serve a-serve"],
        "n2": ["start_workers a-ray"],
    }
    assert answers["decision"]["engines"]["a"]["action"] == "start"
    assert steps["n1"]["start_serve"][0]["depends"] == {"environment": "f", "weights": "w"}


def test_a_device_that_does_not_answer_is_planned_around(tmp_path: Path) -> None:
    devices = [{"index": one, "name": "S60", "memory_bytes": 1 << 35} for one in (0, 1, 2, 4)]
    found = {"kind": "enflame", "count": 4, "pci": ["a"] * 5, "driver_version": "1.7.2.14"}
    engine = {"name": "a", "model": "o/m", "layout": {"tensor": 4}, "hosts": ["n2"]}
    answers = play(
        tmp_path,
        {**found, "devices": devices},
        cluster_name="r1",
        accelerator_count=4,
        engines=[engine],
    )
    (planned,) = answers["layout"]["plan"]["engines"]
    assert [one["device"] for one in planned["ranks"]] == [0, 1, 2, 4]


def test_a_host_that_no_engine_uses_is_named(tmp_path: Path) -> None:
    layout = play(tmp_path, cluster_name="r1", engines=[{"name": "a", "model": "o/m", "nodes": 1}])
    (warning,) = layout["layout"]["warnings"]
    assert warning.startswith("no engine uses n2: ")
    assert layout["layout"]["evidence"]["values"]["idle_hosts"] == ["n2"]
