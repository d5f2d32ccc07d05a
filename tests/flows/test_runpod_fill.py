"""The whole stage `fill` in real plays, with this machine in the place of the pod that it rents.

The API and the hub are emulated; what the pod is given, its tools and the fetching, are real.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.emulators.hub import Hub, Repository
from tests.emulators.runpod_account import Account
from tests.emulators.runpod_cloud import Cloud
from tests.emulators.runpod_parts import Cpu, Gpu, NoMachines
from tests.unit.provision.rental import KEYSCAN
from tests.unit.provision.runpod_rental import KEY, variables
from tests.unit.provision.runpod_world import H200, KANSAS

from .clone import MINUTE, Clone, Ran, Running, wait_until
from .hub_model import MAKE, MODEL
from .processes import end_all
from .test_weights_early import digests

pytestmark = pytest.mark.soak
SIZE = 4 * (6 << 20)
TOKEN = "hf_token-of-ann.0123456789"  # noqa: S105  of the emulated hub
FILL = ("--tags", "validate,fill")


@dataclass
class Here:
    """An account, a hub, a volume, and a clone whose pods are this machine."""

    directory: Path
    cloud: Cloud
    hub: Hub
    clone: Clone
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def volume(self) -> Path:
        return self.directory / "volume"

    @property
    def sent(self) -> int:
        return sum(self.hub.sent.values())

    def start(self, *arguments: str, playbook: str = "site.yml") -> Running:
        place = self.clone.directory / "inventories/pods"
        (place / "group_vars").mkdir(parents=True, exist_ok=True)
        (place / "runpod.yml").write_text("plugin: runpod_pods\n")
        (place / "group_vars/all.yml").write_text(yaml.safe_dump(self.variables))
        here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        (place / "group_vars/fill.yml").write_text(yaml.safe_dump(here))
        (place / "group_vars/gpu.yml").write_text(yaml.safe_dump(here))
        (place / "group_vars/load.yml").write_text(yaml.safe_dump(here))
        return self.clone.start(place, *arguments, playbook=playbook)

    def run(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        ran = self.start(*arguments, playbook=playbook).result()
        assert ran.status == 0, ran.output
        assert KEY not in ran.output and TOKEN not in ran.output
        return ran


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    directory = tmp_path_factory.mktemp("fill")
    subprocess.run([sys.executable, "-c", MAKE, directory / "hub", ""], check=True)
    (directory / "bin").mkdir()
    (directory / "bin/ssh-keyscan").write_text(KEYSCAN)
    (directory / "bin/ssh-keyscan").chmod(0o755)
    (directory / "token").write_text(TOKEN)
    (directory / "token").chmod(0o600)
    repository = Repository(directory / "hub/tree", gated=True, readers=frozenset({"ann"}))
    account = Account(
        [Gpu("NVIDIA H200", 3.5, {KANSAS: 16})],
        {KANSAS: ["STANDARD"]},
        machines=NoMachines("127.0.0.1"),
        cpus=[Cpu("cpu3c", 0.03, {KANSAS: 64})],
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        Hub({MODEL: repository}, tokens={TOKEN: "ann"}) as hub,
        Cloud(account, KEY) as cloud,
    ):
        patch.setenv("PATH", f"{directory / 'bin'}:{os.environ['PATH']}")
        made = Here(directory, cloud, hub, Clone(directory / "clone"))
        made.variables = {
            **variables(directory, cloud),
            "cluster_dir": str(directory / "cluster"),
            "runpod_fill": True,
            "runpod_volume_path": str(directory / "volume"),
            "models_dir": str(directory / "volume/models"),
            "accelerator": "cpu",
            "privileges": "none",
            "port_base": 28900,
            # The model has no configuration worth the name.
            "plan_allow_unchecked": True,
            "huggingface_token_file": str(directory / "token"),
            "sources_environment": {"HF_ENDPOINT": hub.url},
            "engines": [{"name": "chat", "model": MODEL, "nodes": 2}],
        }
        try:
            yield made
        finally:
            end_all(directory / "cluster")
        assert cloud.misfits == []


def test_a_run_that_is_killed_leaves_a_pod_with_its_price_in_the_list_of_orphans(
    here: Here,
) -> None:
    here.hub.throttle(SIZE / 3600)
    running = here.start(*FILL)

    def fetches() -> bool:
        assert running.process.poll() is None, running.console.read_text()
        return here.sent > 0

    wait_until(fetches, 15 * MINUTE, "the first bytes on the volume")
    running.kill()
    (pod,) = here.cloud.account.pods.values()
    assert pod.wanted["cpu"] == {"id": "cpu3c", "vcpuCount": 8}
    assert TOKEN not in str(here.cloud.bodies)
    told = " ".join(here.run(playbook="playbooks/orphans.yml").output.split())
    assert f"{pod.id} r1-fill-" in told and "to fill its network volume" in told
    assert "8x cpu3c in US-KS-2, $0.24/h" in told
    here.hub.throttle(0)


def test_the_next_run_continues_with_that_pod_ends_it_and_says_what_it_has_cost(
    here: Here,
) -> None:
    ran = here.run("-vvv", *FILL)
    told = ran.evidence("fill")[-1]["summary"]
    assert told.startswith(f"network volume r1 in {KANSAS} is filled; 1 x 8x cpu3c in {KANSAS}")
    assert told.endswith(f"next: provision, which rents 2 x {H200}")
    assert digests(here.volume / "models/org--tiny") == digests(here.directory / "hub/tree")
    assert here.cloud.account.pods == {}
    assert here.cloud.writes.count("POST /pods") == 1
    # No key of the cluster was made for it, and none of the hub's lies where others read.
    secrets = {one.name for one in (here.directory / "cluster/secrets").iterdir()}
    assert secrets == {"huggingface_token"}
    kept = [path for path in here.clone.directory.rglob("*") if path.is_file()]
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []


def test_a_second_run_rents_nothing_and_changes_nothing(here: Here) -> None:
    sent = here.sent
    here.cloud.log.clear()
    ran = here.run(*FILL)
    assert "was filled at" in ran.evidence("fill")[-1]["summary"]
    assert (ran.changed, here.cloud.writes, here.sent) == ([], [], sent)


def test_the_pods_find_the_weights_and_have_what_starts_them_again(here: Here) -> None:
    sent = here.sent
    here.variables |= {
        "node_count": 1,
        "engines": [{"name": "chat", "model": MODEL}],
        "runpod_instance_types": ["1x NVIDIA H200"],
    }
    ran = here.run("--tags", "validate,fill,provision,prepare,weights")
    assert "was filled at" in ran.evidence("fill")[-1]["summary"]
    assert here.sent == sent
    done = subprocess.run([here.directory / "cluster/again/start"], check=False)
    assert done.returncode == 0
    # Nothing of this cluster has run here yet.
    assert (here.directory / "cluster/logs/again.log").read_text() == ""
    again = here.run("--tags", "validate,fill,provision,prepare,weights")
    assert again.changed == []
    here.run(playbook="playbooks/teardown.yml")
    assert here.cloud.account.pods == {}


def test_a_rented_host_sends_the_load_once_it_could_reach_the_door_and_is_ended_with_all(
    here: Here,
) -> None:
    """The client's environment has no packages, so the stage ends there."""
    (here.directory / "client.txt").write_text("")
    (here.directory / "ann.key").write_text("k" * 43)
    (here.directory / "ann.key").chmod(0o600)
    (here.directory / "clients.yml").write_text(
        yaml.safe_dump({"clients": {"ann": {"key_sha256": "0" * 64}}})
    )
    here.variables |= {
        "node_count": 1,
        "engines": [{"name": "chat", "model": MODEL}],
        "runpod_instance_types": ["1x NVIDIA H200"],
        "runpod_fill": False,
        "runpod_load": True,
        "runpod_publish_door": True,
        "door_address": "all",
        "door_clients_file": str(here.directory / "clients.yml"),
        "environment_requirements": str(here.directory / "client.txt"),
        "environment_packages": [],
    }
    here.run("--tags", "validate,provision")
    refused = here.start(playbook="playbooks/load.yml").result().failure
    assert "the key of a client of the door" in refused["msg"]
    # That costs nothing.
    assert len(here.cloud.account.pods) == 1
    here.variables["benchmark_load_key_file"] = str(here.directory / "ann.key")
    ran = here.start(playbook="playbooks/load.yml").result()
    told = [one["summary"] for one in ran.evidence("load")]
    assert "r1-load reaches the engines through the door at 127.0.0.1:29443" in told, ran.output
    assert f"1 x 8x cpu3c in {KANSAS}, $0.24/h" in told
    assert len(here.cloud.account.pods) == 2
    assert "$3.74/h for 2 rented machines" in " ".join(ran.output.split())
    # A load host that fails keeps nothing from being ended.
    assert "the engine does not import" in ran.failure["msg"]
    here.run(playbook="playbooks/teardown.yml")
    assert here.cloud.account.pods == {}
