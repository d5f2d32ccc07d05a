"""A turn that fails on one of several hosts ends with the former engine on all of them.

The plays and task files are those of playbooks/upgrade.yml, from the first turn on; the roles they
play only write down where, and with which hosts, they were played.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan

ROOT = Path(__file__).parents[3]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
FIRST_OWN_TASK = "Upgrade one engine after the other"

# What each role does here: task files by role.
WRITE = {
    "ansible.builtin.debug": {
        "msg": "PLAYED {{ step }} {{ site_plan.engines[0].name }} {{ inventory_hostname }}: "
        "{{ site_hosts | map(attribute='name') | join(' ') }}",
    }
}
PLAYED = re.compile(r"PLAYED (\S+) (\S+) (\S+): ([^\"]*)\"")
ROLES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "site": {
        "stage": [
            {
                "ansible.builtin.set_fact": {
                    "site_host": {
                        "name": "{{ inventory_hostname }}",
                        "cluster_dir": "{{ out }}/{{ inventory_hostname }}",
                    },
                    "site_head_host": {"cluster_dir": "{{ out }}/n1"},
                    "site_plan": "{{ before }}",
                }
            }
        ]
    },
    "plan": {
        "decide": [
            {
                "ansible.builtin.set_fact": {
                    "plan_decision": {"differs": True},
                    "plan_processes": {},
                }
            }
        ]
    },
    "ray": {"main": [{**WRITE, "vars": {"step": "ray"}}]},
    "vllm": {
        "main": [
            {**WRITE, "vars": {"step": "start"}},
            {
                "gate": {
                    "gate": "started",
                    "summary": "it starts",
                    "measurements": [
                        {
                            "what": "it starts",
                            "ok": False,
                            "expected": "a start",
                            "found": "none",
                            "where": "{{ inventory_hostname }}",
                            "fix": "none",
                        }
                    ],
                },
                "when": "inventory_hostname == fails or fails == 'once'",
                "run_once": "{{ fails == 'once' }}",
            },
        ],
        "answer": [{**WRITE, "vars": {"step": "restored"}}],
    },
}


def plan(seqs: int) -> dict[str, Any]:
    engines = [
        {"name": name, "model": f"/models/{name}", "vllm_args": {"max_num_seqs": seqs}}
        for name in ("a", "b")
    ]
    capacities = [Capacity.whole(name, "cpu", 1, None) for name in ("n1", "n2")]
    return make_plan("c", parse_engines(engines), capacities).to_dict()


def turn(name: str) -> dict[str, Any]:
    return {"engine": name, "servers": [], "moves": False, "waits": True}


def lay_out(base: Path, hosts: list[str], fails: str) -> None:
    """Write the playbook, its tasks, the roles, the inventory and the settings."""
    shutil.copytree(ROOT / "playbooks/tasks", base / "playbooks/tasks")
    plays = yaml.safe_load((ROOT / "playbooks/upgrade.yml").read_text())
    own = [one for one in plays if "tasks" in one]
    tasks = own[0]["tasks"]
    start = [one["name"] for one in tasks].index(FIRST_OWN_TASK)
    own[0]["tasks"] = [tasks[0], *tasks[start:]]
    (base / "playbooks/upgrade.yml").write_text(yaml.safe_dump(own, sort_keys=False))
    for role, files in ROLES.items():
        for name, content in files.items():
            place = base / "roles" / role / "tasks" / f"{name}.yml"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(yaml.safe_dump(content))
    shutil.copytree(ROOT / "roles/site/vars", base / "roles/site/vars")
    out = base / "out"
    for name in hosts:
        (out / name / "processes").mkdir(parents=True)
    local = {
        "ansible_connection": "local",
        "ansible_python_interpreter": warm.python(),
        "cluster_name": "c",
        "out": str(out),
        "fails": fails,
        "before": plan(8),
        "upgrade_drain_seconds": 1,
        "upgrade_worst_rate": 0.9,
        "__upgrade_wanted": plan(6),
        "__upgrade_door": "",
        "__upgrade_state": {},
        "plan_processes": {},
        "__upgrade_turns": [turn("a"), turn("b")],
    }
    inventory = {"gpu": {"hosts": {name: {} for name in hosts}, "vars": local}}
    (base / "inventory.yml").write_text(yaml.safe_dump(inventory))
    settings = (ROOT / "ansible.cfg").read_text()
    for name in ("library", "action_plugins", "callback_plugins", "filter_plugins"):
        settings = settings.replace(f"{name} = {name}", f"{name} = {ROOT / name}")
    settings = settings.replace("module_utils = src", f"module_utils = {ROOT / 'src'}")
    settings = settings.replace("stdout_callback = stages\n", "")
    settings = settings.replace(
        "callbacks_enabled = preload, run_record", "callbacks_enabled = preload"
    )
    (base / "ansible.cfg").write_text(settings)


@pytest.mark.parametrize(
    ("count", "fails"),
    [
        (2, "n2"),
        pytest.param(3, "n2", marks=pytest.mark.soak),
        pytest.param(3, "once", marks=pytest.mark.soak),
    ],
)
def test_the_former_engine_comes_back_on_every_host(tmp_path: Path, count: int, fails: str) -> None:
    hosts = [f"n{number}" for number in range(1, count + 1)]
    lay_out(tmp_path, hosts, fails)
    done = subprocess.run(
        [str(PLAYBOOK), "-i", "inventory.yml", "playbooks/upgrade.yml"],
        cwd=tmp_path,
        env=os.environ | {"ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    found = {(step, engine, name): known for step, engine, name, known in PLAYED.findall(said)}
    # Its turn began everywhere, and that of the next one nowhere.
    assert {place for place in found if place[0] == "start"} == {
        ("start", "a", name) for name in hosts
    }, said
    # On all of them, and each knows all of them.
    assert {place: known for place, known in found.items() if place[0] == "restored"} == {
        ("restored", "a", name): " ".join(hosts) for name in hosts
    }, said
    assert not (tmp_path / "out/n1/upgrade.json").exists(), said
    # What the run ends with is what failed first.
    assert done.returncode != 0
    assert "It has its former specification back and serves. What failed: " in said
    assert "check failed: it starts" in said
