"""Plays of this repository on several hosts of this machine, whose roles are stubs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests import warm

ROOT = Path(__file__).parents[2]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
Tasks = list[dict[str, Any]]


def lay_out(
    base: Path,
    playbook: str,
    first: str,
    roles: Mapping[str, Mapping[str, Tasks]],
    hosts: Sequence[str],
    variables: Mapping[str, Any],
) -> Path:
    """Write a playbook from its task `first` on, all its tasks, the roles, inventory and settings.

    Its own plays and those of its folder of the same name are kept, other playbooks are not. roles
    are tasks by file by role. Return the directory that has one for each host.
    """
    shutil.copytree(ROOT / "playbooks/tasks", base / "playbooks/tasks")
    own = _plays(ROOT / f"playbooks/{playbook}.yml", playbook)
    tasks = own[0]["tasks"]
    start = [one["name"] for one in tasks].index(first)
    own[0]["tasks"] = [tasks[0], *tasks[start:]]
    (base / f"playbooks/{playbook}.yml").write_text(yaml.safe_dump(own, sort_keys=False))
    if (ROOT / f"playbooks/{playbook}").is_dir():
        shutil.copytree(ROOT / f"playbooks/{playbook}", base / f"playbooks/{playbook}")
    for role, files in roles.items():
        for name, content in files.items():
            place = base / "roles" / role / "tasks" / f"{name}.yml"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(yaml.safe_dump(content))
    shutil.copytree(ROOT / "roles/site/vars", base / "roles/site/vars")
    out = base / "out"
    for name in hosts:
        (out / name / "processes").mkdir(parents=True)
        (out / name / "evidence").mkdir()
    local = {
        "ansible_connection": "local",
        "ansible_python_interpreter": warm.python(),
        "cluster_name": "c",
        "out": str(out),
        **variables,
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
    return out


def _plays(path: Path, folder: str) -> list[dict[str, Any]]:
    plays: list[dict[str, Any]] = yaml.safe_load(path.read_text())
    return [
        one
        for one in plays
        if "tasks" in one or one.get("import_playbook", "").startswith(f"{folder}/")
    ]


def stage(plan: Any) -> dict[str, Tasks]:
    """Return what stands for the role `site`: hosts whose directories are below `out`."""
    known = {
        "site_host": {
            "name": "{{ inventory_hostname }}",
            "cluster_dir": "{{ out }}/{{ inventory_hostname }}",
        },
        "site_head_host": {"cluster_dir": "{{ out }}/n1"},
        "site_plan": plan,
    }
    return {"stage": [{"ansible.builtin.set_fact": known}]}


def failing(condition: str, once: str) -> dict[str, Any]:
    """Return a task that fails where a condition holds, on one host for all where `once` does."""
    row = {"what": "it starts", "ok": False, "expected": "a start", "found": "none", "fix": "none"}
    gate = {
        "gate": "started",
        "summary": "it starts",
        "measurements": [{**row, "where": "{{ inventory_hostname }}"}],
    }
    return {"gate": gate, "when": condition, "run_once": once}


def play(base: Path, playbook: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Play what was laid out."""
    return subprocess.run(
        [str(PLAYBOOK), "-i", "inventory.yml", f"playbooks/{playbook}.yml", *options],
        cwd=base,
        env=os.environ | {"ANSIBLE_CONFIG": str(base / "ansible.cfg"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
