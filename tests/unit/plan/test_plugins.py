"""The thin plugins over the planner, played as roles play them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from tests import warm

from .estimate.layouts.conftest import R1

ROOT = Path(__file__).parents[3]


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
    here = {"ansible_connection": "local", "ansible_python_interpreter": warm.python()}
    group = {"hosts": hosts, "vars": {**here, **variables}}
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"gpu": group}}}))
    tasks: list[dict[str, Any]] = [
        {"site_facts": {"looks": "__site_look"}, "register": "facts", "run_once": True},
        {"set_fact": {"site_host": "{{ facts.hosts[inventory_hostname] }}"}},
        {
            "plan_layout": {
                "cluster": "{{ cluster_name }}",
                "engines": "{{ engines }}",
                "hosts": "site_host",
                "configs": "__plan_configs",
            },
            "register": "layout",
            "run_once": True,
        },
        {
            "engine_decision": {
                "plan": "{{ layout.plan }}",
                "looks": "looked",
                "hosts": "site_host",
                "environments": "environment_installed",
                "models": "weights_models",
                "places": "weights_dirs",
            },
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
    done = warm.play(
        ["-i", directory / "hosts.yml", directory / "play.yml"],
        cwd=ROOT,
        env={**os.environ, "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs")},
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
    # What is refused later has changed nothing.
    assert layout["differs"] and not layout["changed"]
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


def h100s(
    directory: Path,
    engine: dict[str, Any],
    tasks_from: str,
    name: str = "NVIDIA H100 80GB HBM3",
) -> tuple[int, dict[str, Any]]:
    """Play the role plan, as far as it needs no engine, over two hosts of eight H100."""
    one = {"name": name, "memory_bytes": 81559 << 20}
    devices = [{"index": index, **one} for index in range(8)]
    found = {"kind": "nvidia", "count": 8, "pci": ["a"] * 8, "driver_version": "580.1"}
    hosts = {f"n{number}": {"__site_look": look(number, {**found, "devices": devices})}
             for number in (1, 2)}  # fmt: skip
    here = {"ansible_connection": "local", "ansible_python_interpreter": warm.python()}
    known = {
        "cluster_name": "r1",
        "engines": [{"name": "r1", **engine}],
        "port_base": 20000,
        "accelerators": {},
        "models_dir": str(directory / "models"),
    }
    group = {"hosts": hosts, "vars": {**here, **known}}
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"gpu": group}}}))
    tasks: list[dict[str, Any]] = [
        {"site_facts": {"looks": "__site_look"}, "register": "facts", "run_once": True},
        {
            "set_fact": {
                "site_host": "{{ facts.hosts[inventory_hostname] }}",
                "site_hosts": "{{ facts.hosts.values() | list }}",
            }
        },
        {"include_role": {"name": "plan", "tasks_from": tasks_from}},
        {
            "plan_layout": {
                "cluster": "r1",
                "engines": "{{ engines }}",
                "hosts": "{{ site_hosts }}",
                "configs": "__plan_configs",
            },
            "run_once": True,
        },
    ]
    book = [{"hosts": "gpu", "gather_facts": False, "tasks": tasks}]
    (directory / "play.yml").write_text(yaml.safe_dump(book))
    done = warm.play(
        ["-i", directory / "hosts.yml", directory / "play.yml"],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs"),
            "XDG_CACHE_HOME": str(directory),
            "HF_ENDPOINT": "http://127.0.0.1:9",
        },
    )
    told = json.loads(done.stdout[done.stdout.index("{") :])
    last = told["plays"][-1]["tasks"][-1]
    return done.returncode, {**last["hosts"]["n1"], "task": last["task"]["name"]}


def test_weights_in_a_directory_of_the_hosts_are_planned_for(tmp_path: Path) -> None:
    place = tmp_path / "data/DeepSeek-R1"
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(R1))
    status, answer = h100s(tmp_path, {"model": str(place)}, "read")
    assert status == 0, answer
    assert answer["evidence"]["summary"] == "r1: DP2 TP8 on n1, n2 (dp, ports 20020 to 20021)"
    assert answer["evidence"]["values"]["idle_devices"] == {}


def test_weights_that_no_host_has_are_refused_and_never_one_rank(tmp_path: Path) -> None:
    status, answer = h100s(tmp_path, {"model": "/data/DeepSeek-R1"}, "read")
    assert status != 0
    assert "engine r1 has layout: auto, and nothing can be planned" in answer["msg"]
    assert "/data/DeepSeek-R1/config.json: No such file or directory" in answer["msg"]


def test_what_cannot_run_is_refused_before_packages_and_weights_travel(tmp_path: Path) -> None:
    place = tmp_path / "data/DeepSeek-R1"
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(R1))
    engine = {"model": str(place), "layout": {"tensor": 8}}
    status, answer = h100s(tmp_path, engine, "early")
    assert status != 0
    assert answer["task"] == "plan : Refuse what cannot run"
    assert (
        "layout TP8 PP1 cannot run on 2x8 H100-80: a rank has no room for a KV cache"
        in answer["msg"]
    )
    assert answer["fix"].startswith("write layout: {data: 2, tensor: 8} or auto")


def test_an_accelerator_that_nobody_described_is_planned_by_its_memory_and_idle_ones_are_told(
    tmp_path: Path,
) -> None:
    engine = {"model": "package:smollm2-135m-instruct", "executor": "mp"}
    status, answer = h100s(tmp_path, engine, "read", "NVIDIA X9000")
    assert status == 0, answer
    (planned,) = answer["plan"]["engines"]
    assert any(words.startswith("NVIDIA X9000 is not a known") for words in planned["reasons"])
    assert planned["estimate"]["stages"][0]["memory_bytes"] == 81559 << 20
    idle = answer["evidence"]["values"]["idle_devices"]
    assert sum(idle.values()) == 16 - len(planned["ranks"]) > 0
    (warning,) = answer["warnings"]
    told = ", ".join(f"{host} {free} of 8" for host, free in idle.items())
    assert warning.startswith(f"{sum(idle.values())} of 16 accelerators stay idle: {told}; ")
