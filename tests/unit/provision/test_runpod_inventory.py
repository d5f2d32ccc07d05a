"""`ansible-inventory` and `site.yml` over an inventory of RunPod, against the emulated cloud."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.emulators.runpod_cloud import Cloud as Emulator
from tests.emulators.runpod_parts import NoMachines
from tests.unit.conftest import one_path
from vllm_ansible.provision.cluster import Cluster
from vllm_ansible.provision.host_keys import HostKeys
from vllm_ansible.provision.provider import provider

from . import runpod_rental
from .runpod_rental import KEY
from .runpod_world import H200, KANSAS

ROOT = Path(__file__).parents[3]


class Site:
    """A clone by links, with state/ and runs/ of its own, and an inventory of a few lines."""

    def __init__(self, directory: Path, cloud: Emulator) -> None:
        self.directory, self.cloud = directory, cloud
        for path in ROOT.iterdir():
            if path.name in ("action_plugins", "inventory_plugins"):
                # state/ is beside them.
                shutil.copytree(path, directory / path.name)
            elif path.name not in ("state", "runs", "inventories", ".git"):
                (directory / path.name).symlink_to(path)
        self.variables = {
            **runpod_rental.variables(directory, cloud),
            "engines": [{"name": "chat", "model": "package:smollm2-135m-instruct"}],
        }

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        place = self.directory / "inventories/pods"
        (place / "group_vars").mkdir(parents=True, exist_ok=True)
        (place / "runpod.yml").write_text("plugin: runpod_pods\n")
        (place / "group_vars/all.yml").write_text(yaml.safe_dump(self.variables))
        clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        here = one_path(self.directory)
        settings = {"HOME": str(self.directory), "ANSIBLE_CONFIG": str(here / "ansible.cfg")}
        return warm.play(
            ["-i", "inventories/pods", *arguments],
            self.directory,
            {**clean, **settings, "COLUMNS": "120"},
            program,
            timeout=300,
        )

    def rent(self) -> Cluster:
        """Rent what the inventory asks for, as the stage provision does."""
        cloud = provider("runpod")
        cluster = cloud.cluster(cloud.settings(self.variables, "here"), self.directory / "state")
        cluster.keep_state()
        fleet = cluster.fleet()
        fleet.launch([0, 1], fleet.offers()[0])
        assert len(cluster.machines()) == 2
        fleet.forget()
        return cluster

    def listed(self) -> dict[str, Any]:
        done = self.run("ansible-inventory", "--list", "-vvv")
        assert done.returncode == 0, done.stderr
        assert KEY not in done.stdout + done.stderr
        # What comes from outside is marked, so that it is never evaluated as a template.
        text = done.stdout[done.stdout.index("{") :]
        found: dict[str, Any] = json.loads(
            text, object_hook=lambda one: one.get("__ansible_unsafe", one)
        )
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with runpod_rental.cloud() as cloud:
        yield Site(tmp_path, cloud)
        assert cloud.misfits == []


def test_every_slot_is_a_host_and_follows_its_pod(site: Site) -> None:
    found = site.listed()
    assert (found["head"]["hosts"], found["worker"]["hosts"]) == (["r1-0"], ["r1-1"])
    host = found["_meta"]["hostvars"]["r1-1"]
    assert host["ansible_host"] == "no-machine-yet.invalid"
    assert (host["accelerator_count"], host["accelerator_model"]) == (8, "H200")
    assert (host["ansible_user"], host["supervisor"]) == ("root", "supervisord")
    assert host["data_plane_interface"] == "ens1"
    assert site.cloud.writes == []
    # Rented, as provision does it; then RunPod publishes the same pods at other ports.
    cluster = site.rent()
    keys = HostKeys(cluster.known_hosts, scan=lambda _: ["ssh-ed25519 AAAA"])
    keys.learn({one.shown_by: one.door for one in cluster.machines()}, 0)
    site.cloud.account.move_ports()
    (site.directory / "state/r1/runpod-instances.json").unlink()
    host = site.listed()["_meta"]["hostvars"]["r1-1"]
    assert (host["ansible_host"], host["ansible_port"]) == ("198.51.100.2", 23003)
    assert host["provision_machine"]["type"] == H200
    (known,) = [one for one in cluster.machines() if one.slot == 1]
    assert host["provision_machine"]["usd_per_hour"] == known.cents_per_hour / 100 > 0
    assert cluster.known_hosts.read_text().splitlines() == [
        f"[198.51.100.{n}]:{23001 + n} ssh-ed25519 AAAA" for n in (1, 2)
    ]


def test_a_check_of_the_site_tells_the_price_writes_nothing_and_shows_no_key(site: Site) -> None:
    done = site.run("ansible-playbook", "site.yml", "--check", "--tags", "provision", "-vvv")
    told = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"2 of 2 would be rented: {H200} in {KANSAS}, $56.00/h" in told
    assert site.cloud.writes == []
    assert KEY not in done.stdout + done.stderr
    written = [path for path in site.directory.rglob("*") if path.is_file() and path.name != "key"]
    own = [path for path in written if not path.resolve().is_relative_to(ROOT)]
    assert own and [path for path in own if KEY.encode() in path.read_bytes()] == []


def test_the_playbooks_list_orphans_and_end_in_an_empty_list(site: Site) -> None:
    """Nobody answers at the pods' ports: that keeps no teardown from ending them."""
    account = site.cloud.account
    account.machines = NoMachines("127.0.0.1")
    site.rent()
    volume = account.create_volume({"name": "old", "dataCenter": KANSAS, "size": 10})["id"]
    done = site.run("ansible-playbook", "playbooks/orphans.yml")
    assert done.returncode == 0 and volume in done.stdout, done.stdout + done.stderr
    assert "1 volume that this cluster does not claim" in done.stdout
    done = site.run("ansible-playbook", "playbooks/teardown.yml")
    told = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 machines ended, none is listed any more; the cluster has cost about" in told
    assert (account.clusters, account.pods) == ({}, {})
    assert sorted(one["name"] for one in account.volumes.values()) == ["old", "r1"]


def test_a_head_that_does_not_answer_yet_ends_no_run_without_a_word(site: Site) -> None:
    """Its lock cannot be asked for: the run goes on to look at the machine, and names it."""
    site.cloud.account.machines = NoMachines("127.0.0.1")
    site.rent()
    stage = ("site.yml", "--tags", "provision", "-e", "provision_ssh_seconds=1")
    done = site.run("ansible-playbook", *stage)
    told = " ".join(done.stdout.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert "none of 2 machines is fit" in told, done.stdout + done.stderr
    assert "showed no SSH key within 1 s" in told


def test_a_head_that_is_gone_when_its_lock_is_released_ends_no_run_without_a_word(
    site: Site,
) -> None:
    """As where its pod ended meanwhile: what the run has left to do is done, on every host."""
    site.cloud.account.machines = NoMachines("127.0.0.1")
    site.rent()
    release = {"name": "provision", "tasks_from": "release", "rolespec_validate": False}
    play = {
        "hosts": "gpu",
        "gather_facts": False,
        "vars": {"__provision_lock": {"lock": {"run": "this"}}},
        "tasks": [
            {"name": "Release", "ansible.builtin.import_role": release},
            {
                "name": "Go on",
                "ansible.builtin.debug": {"msg": "went on at {{ inventory_hostname }}"},
            },
        ],
    }
    (site.directory / "book.yml").write_text(yaml.safe_dump([play]))
    done = site.run("ansible-playbook", "book.yml", "-e", "ansible_ssh_timeout=1", "-v")
    told = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "went on at r1-0" in told and "went on at r1-1" in told
    assert "r1-0 did not answer: its lock of this run remains" in told


def test_keys_that_cannot_be_written_keep_nobody_from_the_machines(site: Site) -> None:
    """As on a full disk: a pod has moved, and what ssh reads cannot be written anew."""
    cluster = site.rent()
    keys = HostKeys(cluster.known_hosts, scan=lambda _: ["ssh-ed25519 AAAA"])
    keys.learn({one.shown_by: one.door for one in cluster.machines()}, 0)
    site.cloud.account.move_ports()
    (site.directory / "state/r1/runpod-instances.json").unlink()
    cluster.known_hosts.unlink()
    (cluster.known_hosts / "in the way").mkdir(parents=True)
    assert site.listed()["_meta"]["hostvars"]["r1-1"]["ansible_port"] == 23003


def test_pods_beside_the_cluster_are_hosts_of_their_own_groups(site: Site) -> None:
    site.variables |= {
        "runpod_fill": True,
        "runpod_load": True,
        "runpod_publish_door": True,
        "door_address": "all",
        "door_clients_file": "clients.yml",
        "models_dir": "/workspace/models",
    }
    found = site.listed()
    assert (found["fill"]["hosts"], found["load"]["hosts"]) == (["r1-fill"], ["r1-load"])
    assert found["gpu"]["hosts"] == ["r1-0", "r1-1"]
    host = found["_meta"]["hostvars"]["r1-load"]
    assert (host["accelerator"], host["supervisor"]) == ("cpu", "supervisord")
    assert host["ansible_host"] == "no-machine-yet.invalid"
    # What the stage provision rents, judges and replaces is the cluster alone.
    assert "provision_provider" not in host and host["provision_beside"] == "runpod"
    site.rent()
    (site.directory / "state/r1/runpod-instances.json").unlink(missing_ok=True)
    host = site.listed()["_meta"]["hostvars"]["r1-0"]
    assert host["provision_machine"]["published"] == {"9443": "198.51.100.1:29443"}


def test_a_check_of_the_site_says_what_filling_costs_before_what_the_cluster_costs(
    site: Site,
) -> None:
    engines = [{"name": "chat", "model": "org/tiny", "nodes": 2}]
    site.variables |= {
        "runpod_fill": True,
        "models_dir": "/workspace/models",
        "plan_allow_unchecked": True,
        "engines": engines,
        # Nobody answers there, and nobody else is asked.
        "sources_environment": {"HF_ENDPOINT": "http://127.0.0.1:9"},
    }
    done = site.run("ansible-playbook", "site.yml", "--check", "--tags", "fill,provision")
    told = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    fill = told.index(f"1 of 1 would be rented: 8x cpu5c in {KANSAS}, $0.32/h")
    assert fill < told.index(f"2 of 2 would be rented: {H200} in {KANSAS}, $56.00/h")
    assert site.cloud.writes == []
