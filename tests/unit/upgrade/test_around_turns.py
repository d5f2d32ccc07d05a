"""What upgrades wait for and what other runs leave of them, by the tasks of the playbook and role.

The door is a module of the same name that writes down what it is asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests import warm
from tests.conftest import ROOT
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
# Each look takes longer than the second between two of them.
DOOR = """#!/usr/bin/python
import json, time
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"socket": {}, "servers": {"type": "list"}, "state": {"default": "look"},
                        "engines": {"type": "list"}})
with open("%s/asked", "a") as file:
    file.write(json.dumps(module.params) + chr(10))
if module.params["state"] == "look":
    time.sleep(2)
module.exit_json(changed=module.params["state"] == "ready", servers=[], requests=1)
"""


def plan() -> dict[str, Any]:
    engines = parse_engines([{"name": "a", "model": "/models/a"}])
    return make_plan("c", engines, [Capacity.whole("n1", "cpu", 1, None)]).to_dict()


def play(base: Path, *plays: list[dict[str, Any]], **variables: Any) -> str:
    """Play lists of tasks on this machine and return what was said."""
    (base / "library").mkdir(exist_ok=True)
    (base / "library/door_servers.py").write_text(DOOR % base)
    settings = f"""[defaults]
library = {base}/library
action_plugins = {ROOT}/action_plugins
filter_plugins = {ROOT}/filter_plugins
module_utils = {ROOT}/src
callback_plugins = {ROOT}/callback_plugins
callbacks_enabled = preload
"""
    (base / "ansible.cfg").write_text(settings)
    known = {
        "ansible_connection": "local",
        "ansible_python_interpreter": warm.python(),
        "site_head": "n1",
        "site_host": {"name": "n1", "address": "127.0.0.1", "run_dir": "/run/c"},
        "site_hosts": ["{{ site_host }}"],
        "site_head_host": {"cluster_dir": str(base)},
        "site_plan": plan(),
        "plan_made": plan(),
        "site_kept": {"upgrade": True},
        "plan_processes": {"door": {"engine": "", "running": True}},
        "__upgrade_doors": ["n1"],
        "upgrade_turn": {"engine": "a", "servers": ["a-serve"]},
        **variables,
    }
    (base / "inventory.yml").write_text(yaml.safe_dump({"gpu": {"hosts": {"n1": known}}}))
    one = {"hosts": "gpu", "gather_facts": False, "any_errors_fatal": True}
    all_plays = [{**one, "tasks": tasks} for tasks in plays]
    (base / "play.yml").write_text(yaml.safe_dump(all_plays, sort_keys=False))
    done = subprocess.run(
        [str(PLAYBOOK), "-i", "inventory.yml", "play.yml"],
        cwd=base,
        env=os.environ | {"ANSIBLE_CONFIG": str(base / "ansible.cfg"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def asked(base: Path) -> list[dict[str, Any]]:
    return [yaml.safe_load(line) for line in (base / "asked").read_text().splitlines()]


def test_a_drain_waits_for_seconds_and_counts_the_engine_s_own_requests(tmp_path: Path) -> None:
    text = (ROOT / "playbooks/tasks/upgrade_engine.yml").read_text()
    (outer,) = yaml.safe_load(text)
    block = next(one for one in outer["block"] if "rescue" in one)["block"]
    end = [one["name"] for one in block].index("Judge that no request is cut off")
    play(tmp_path, block[:end], upgrade_drain_seconds=4)
    looks = [one for one in asked(tmp_path) if one["state"] == "look"]
    # Two of two seconds with one between them; four and more if it were a number of looks.
    assert 1 <= len(looks) <= 2
    assert looks[0]["engines"] == ["127.0.0.1:8000"]


def test_a_run_that_keeps_its_plan_ends_an_upgrade_that_was_interrupted(tmp_path: Path) -> None:
    tasks = yaml.safe_load((ROOT / "roles/plan/tasks/main.yml").read_text())
    names = [one["name"] for one in tasks]
    tasks = tasks[names.index("Look for an upgrade that did not end") :]
    kept = tmp_path / "upgrade.json"
    kept.write_text("{}")
    # An upgrade plans with this role as well, and needs its file.
    own = [{"block": tasks, "vars": {"plan_keeps": False}}]
    still = {"ansible.builtin.assert": {"that": f"'{kept}' is file"}}
    said = play(tmp_path, [*own, still], tasks, tasks, plan_keeps=True)
    # The door and the file, in the first of the two runs alone.
    assert "changed=2 " in said, said
    assert not kept.exists()
    (ready,) = asked(tmp_path)
    assert (ready["state"], ready["servers"]) == ("ready", ["a-router", "a-serve"])
    assert ready["socket"] == "/run/c/door/admin.sock"


def tasks_of(found: Any) -> list[dict[str, Any]]:
    """Return tasks with those of their blocks, in their order."""
    inner = [one.get(part, []) for one in found for part in ("block", "rescue", "tasks")]
    return [*found, *(task for part in inner for task in tasks_of(part))] if found else []


def test_routers_may_restart_with_their_engine_and_lack_nothing_before_it_drains() -> None:
    for name in ("engine", "restore"):
        text = (ROOT / f"playbooks/tasks/upgrade_{name}.yml").read_text()
        (routers,) = [
            one for one in tasks_of(yaml.safe_load(text)) if "routers.yml" in one.values()
        ]
        assert routers["vars"] == {"allow_disruption": True}
    plays = yaml.safe_load((ROOT / "playbooks/upgrade.yml").read_text())
    tasks = next(one["tasks"] for one in plays if "tasks" in one)
    names = [one["name"] for one in tasks]
    ready = tasks[names.index("Install what a router needs before an engine is drained")]
    assert ready["ansible.builtin.include_role"]["tasks_from"] == "ready"
    assert ready["vars"] == {"site_plan": "{{ __upgrade_wanted }}"}
    assert tasks.index(ready) < names.index("Upgrade one engine after the other")
