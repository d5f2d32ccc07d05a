"""`ansible-inventory` with the plugin, and what stands for Slurm's commands: recorded words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.plan.ports import EPHEMERAL_FIRST, INTERNAL_BASE, Ports, ports_for
from vllm_ansible.provision.fleet import NOWHERE
from vllm_ansible.slurm.inventory import port_base, shared
from vllm_ansible.slurm.settings import Settings

from .recorded import RUNNING, WAITING

ROOT = Path(__file__).parents[3]
GIVEN: dict[str, Any] = {
    "cluster_name": "r1",
    "slurm_nodes": 2,
    "slurm_gres": "gpu:h100:4",
    "shared_dir": "{{ my_scratch }}/vllm",
    "my_scratch": "/scratch/me",
}


class Login:
    """A login node whose Slurm says always the same."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.says("scontrol", "lab2\nlab3\n")
        self.says("squeue", "")

    def says(self, command: str, output: str, errors: str = "", status: int = 0) -> None:
        program = self.directory / "bin" / command
        program.parent.mkdir(exist_ok=True)
        for name, text in (("out", output), ("err", errors)):
            (self.directory / f"{command}.{name}").write_text(text)
        here = self.directory / command
        program.write_text(f"#!/bin/sh\ncat {here}.err >&2\ncat {here}.out\nexit {status}\n")
        program.chmod(0o755)

    def list(self, *arguments: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        place = self.directory / "inventory"
        (place / "group_vars").mkdir(parents=True, exist_ok=True)
        (place / "slurm.yml").write_text("plugin: slurm_nodes\n")
        (place / "group_vars" / "all.yml").write_text(yaml.safe_dump(GIVEN | changes))
        return subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-inventory")),
                *("-i", str(place), "--list", *arguments),
            ],
            cwd=ROOT,
            env={**os.environ, "PATH": f"{self.directory}/bin:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )

    def hosts(self, **changes: Any) -> dict[str, dict[str, Any]]:
        done = self.list(**changes)
        assert done.returncode == 0, done.stderr
        found: dict[str, dict[str, Any]] = json.loads(done.stdout)["_meta"]["hostvars"]
        return found


@pytest.fixture
def login(tmp_path: Path) -> Login:
    return Login(tmp_path)


@pytest.mark.parametrize("squeue", ["", WAITING])
def test_nodes_are_hosts_before_the_job_runs(login: Login, squeue: str) -> None:
    login.says("squeue", squeue)
    hosts = login.hosts()
    assert list(hosts) == ["r1-0", "r1-1"]
    assert {one["ansible_host"] for one in hosts.values()} == {NOWHERE}
    assert {one["slurm_job_id"] for one in hosts.values()} == {""}
    # Enough to plan a layout.
    assert (hosts["r1-0"]["accelerator_count"], hosts["r1-0"]["accelerator_model"]) == (
        4,
        "H100-80",
    )


@pytest.mark.parametrize(
    ("gres", "constraint", "model"),
    [
        ("gpu:4", "h200", "H200"),
        ("gpu:hopper:4", "h100", "H100-80"),
        ("gpu:hopper:4", "ib&fast", None),
        ("gpu:a100:4", "", "A100-80"),
    ],
)
def test_a_sites_own_words_are_taken_where_the_planner_knows_them(
    gres: str, constraint: str, model: str | None
) -> None:
    wanted = Settings("r1", 2, "/scratch/me", gres=gres, constraint=constraint)
    assert shared(wanted, None, "/run", 1000).get("accelerator_model") == model


def test_a_running_job_gives_each_slot_its_node(login: Login) -> None:
    login.says("squeue", RUNNING)
    hosts = login.hosts()
    assert [one["ansible_host"] for one in hosts.values()] == ["lab2", "lab3"]
    assert {one["slurm_job_id"] for one in hosts.values()} == {"12"}
    assert hosts["r1-1"]["cluster_dir"] == "/scratch/me/vllm/r1/{{ inventory_hostname }}"
    assert hosts["r1-0"]["provision_machine"]["ends_at"] == 1795373996
    # It was asked for otherwise than the inventory says now: nobody knows when it drains.
    assert hosts["r1-0"]["provision_machine"]["drains_at"] == 0


def test_clusters_on_shared_nodes_have_ports_of_their_own() -> None:
    names = [f"r{number}" for number in range(100)]
    found = {name: port_base(1000, name) for name in names}
    assert found == {name: port_base(1000, name) for name in names}
    assert port_base(1001, "r1") != found["r1"]
    assert len(set(found.values())) > 40
    for base in found.values():
        first, second = ports_for(0, None, base), ports_for(1, None, base)
        used = {*listened(first), *listened(second)}
        # Nothing of a cluster that kept the usual ports, and nothing that Linux hands out.
        assert min(used) >= INTERNAL_BASE + 200
        assert max(used) < EPHEMERAL_FIRST


def listened(ports: Ports) -> list[int]:
    """Return every port that an engine may listen on."""
    return sorted(asdict(ports).values())


def test_an_inventory_has_the_last_word(login: Login) -> None:
    hosts = login.hosts(cluster_dir="/local/r1", ansible_connection="ssh")
    assert hosts["r1-0"]["cluster_dir"] == "/local/r1"
    assert hosts["r1-0"]["ansible_connection"] == "ssh"


def test_an_inventory_that_cannot_be_is_refused_in_words(login: Login) -> None:
    done = login.list(slurm_nodes=None)
    assert done.returncode == 1
    assert "slurm_nodes is not set" in done.stderr


def test_a_slurmctld_that_does_not_answer_is_no_cluster_without_nodes(login: Login) -> None:
    login.says("squeue", "", "slurm_load_jobs error: Unable to contact slurm controller", 1)
    done = login.list()
    assert done.returncode == 1
    assert "Slurm does not answer" in done.stderr
    assert "Unable to contact" in done.stderr
