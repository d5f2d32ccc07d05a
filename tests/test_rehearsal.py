"""A made-up accelerator and a made-up cloud, each added by its own files (tests/rehearsal).

They are laid over a copy of the repository. Nothing else is edited but for one table: what a host
asks its accelerators by, since Ansible sends to hosts only what is imported by name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ADDED = ROOT / "tests/rehearsal"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
CATALOGUE = "src/vllm_ansible/node/accelerators/catalogue.py"
LEFT = {"state", "runs", "tests", "docs", "build", "molecule", "benchmarks", "node_modules"}
KEYSCAN = '#!/bin/sh\nfor address; do :; done\necho "$address ssh-ed25519 AAAA"\n'
# What `prepare` plays of the driver, what chooses an environment, what `plan` and `serve` decide.
STAGES = """
- hosts: gpu
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - import_role: {name: site, tasks_from: stage}
    - name: Check or manage the driver
      when: (site_host.accelerator | platform_of).driver_role != ''
      include_role:
        name: "{{ (site_host.accelerator | platform_of).driver_role }}"
        rolespec_validate: false
    - name: Choose the environment
      debug:
        msg: "{{ site_host | engine_lock(site_hosts, '3.12') }} {{ environment_locked }}"
      vars: {environment_locked: "{{ site_host | engine_lock_summary(site_hosts) }}"}
    - name: Compute the layout
      plan_layout:
        cluster: "{{ cluster_name }}"
        engines: "{{ engines }}"
        accelerators: "{{ accelerators }}"
        hosts: "{{ site_hosts }}"
        configs: __plan_configs
      register: layout
    - name: Take what other stages find
      set_fact:
        environment_installed: {directory: /e/abc, fingerprint: f}
        weights_models: {chat: {path: /data/nowhere, fingerprint: w}}
        looked: {processes: {}}
    - name: Decide what runs
      engine_decision:
        plan: "{{ layout.plan }}"
        looks: looked
        hosts: site_host
        environments: environment_installed
        models: weights_models
        places: weights_dirs
"""
Play = Callable[..., list[dict[str, Any]]]


def linked(source: str, target: str) -> str:
    """Make one file two names, or copy it where that cannot be."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def laid_over(directory: Path, added: Path) -> None:
    """Lay files over a copy of what is played; none of its own may be replaced."""
    for path in ROOT.iterdir():
        if path.name.startswith(".") or path.name in LEFT:
            continue
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, directory / path.name, ignore=ignored, copy_function=linked)
        else:
            linked(str(path), str(directory / path.name))
    for path in sorted(added.rglob("*")):
        target = directory / path.relative_to(added)
        if path.is_file() and "__pycache__" not in path.parts:
            assert not target.exists(), f"{target} is there already"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Give what plays books over the copy, and returns every task's result, in order."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh-keyscan").write_text(KEYSCAN)
    (tmp_path / "bin/ssh-keyscan").chmod(0o755)

    def played(*words: str) -> list[dict[str, Any]]:
        clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        done = subprocess.run(
            [PLAYBOOK, "-i", "inventories/imagined", *words],
            cwd=tmp_path,
            env={
                **clean,
                "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
                "HOME": str(tmp_path),
                "HF_ENDPOINT": "http://127.0.0.1:9",
                "PYTHONPATH": str(tmp_path / "src"),
                "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        found = [
            {"task": task["task"]["name"], "host": host, **result}
            for book in documents(done.stdout)
            for one in book["plays"]
            for task in one["tasks"]
            for host, result in task["hosts"].items()
        ]
        if done.returncode != 0:
            raise RuntimeError(json.dumps([done.stderr, *found[-2:]]))
        return found

    return played


def documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield what each playbook said."""
    decoder, place = json.JSONDecoder(), text.find("{")
    while place >= 0:
        found, place = decoder.raw_decode(text, place)
        yield found
        place = text.find("{", place)


def result(results: list[dict[str, Any]], task: str) -> dict[str, Any]:
    """Return the last result of a task that was not skipped."""
    return [one for one in results if one["task"].endswith(task) and not one.get("skipped")][-1]


def test_a_made_up_accelerator_is_validated_looked_at_and_planned(
    tmp_path: Path, play: Play
) -> None:
    laid_over(tmp_path, ADDED / "accelerator")
    catalogue = tmp_path / CATALOGUE
    text = catalogue.read_text(encoding="utf-8")
    catalogue.unlink()
    entry = text.replace("import enflame, nvidia", "import enflame, imagined, nvidia")
    entry = entry.replace("= (nvidia.PLATFORM", "= (imagined.PLATFORM, nvidia.PLATFORM")
    assert entry != text
    catalogue.write_text(entry, encoding="utf-8")
    (tmp_path / "stages.yml").write_text(STAGES)
    variables = tmp_path / "inventories/imagined/group_vars/all.yml"
    written = yaml.safe_load(variables.read_text())

    played = play("playbooks/validate.yml", "stages.yml")
    assert "1 host" in result(played, "Check every variable of every host")["evidence"]["summary"]
    host = result(played, "Keep what each host is")["ansible_facts"]["site_host"]
    assert (host["accelerator"], host["accelerator_count"]) == ("imagined", 2)
    assert host["accelerator_name"] == "Imagined One"
    driver = result(played, "Judge the driver")["evidence"]["summary"]
    assert driver == "here: the driver is imagined, check"
    told = result(played, "Choose the environment")["msg"]
    assert told == "imagined an environment is locked for imagined"
    plan = result(played, "Compute the layout")["plan"]
    assert plan["engines"][0]["layout"]["tensor"] == written["engines"][0]["layout"]["tensor"]
    decided = json.dumps(result(played, "Decide what runs"))
    assert '"IMAGINED_VISIBLE_DEVICES": "0,1"' in decided
    assert "VLLM_CPU_OMP_THREADS_BIND" not in decided


def test_a_made_up_cloud_is_validated_and_rents(tmp_path: Path, play: Play) -> None:
    laid_over(tmp_path, ADDED / "provider")
    books = ("playbooks/validate.yml", "playbooks/provision.yml")
    played = play(*books)
    assert "2 hosts" in result(played, "Check every variable of every host")["evidence"]["summary"]
    fit = [one for one in played if one["task"].endswith("Judge that every machine is fit")]
    assert {one["host"]: one["evidence"]["summary"] for one in fit} == {
        "imagined-0": "fit: answers",
        "imagined-1": "fit: answers",
    }
    account = tmp_path / "state/imagined/imagined-account.json"
    assert [one["id"] for one in json.loads(account.read_text())] == ["i-0", "i-1"]
    again = play(*books)
    assert not any(one.get("changed") for one in again)
