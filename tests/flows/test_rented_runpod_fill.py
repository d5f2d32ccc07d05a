"""RunPod's first stage of money: a pod without accelerators fills the volume, others find it full.

Then one that sends the load to the door, which RunPod publishes. The API is emulated, its pods are
hosts of a lab without systemd, the hub is emulated, and a stand-in serves in the place of vLLM.
"""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.emulators.hub import Hub, Repository

from .clone import MINUTE, Ran, wait_until
from .hub_model import MAKE, MODEL, digests
from .rented_runpod import KEY, KIND, PLACE, RentedRunpod, rented_runpod

pytestmark = [pytest.mark.lab, pytest.mark.soak]
SIZE = 4 * (6 << 20)
TOKEN = "hf_token-of-ann.0123456789"  # noqa: S105  of the emulated hub
FILL = ("--tags", "validate,fill")
WEIGHTS = ("--tags", "validate,fill,provision,prepare,weights")


@dataclass
class Filled:
    """An account, and a hub that knows what it has sent."""

    rented: RentedRunpod
    hub: Hub
    tree: Path

    @property
    def sent(self) -> int:
        return sum(self.hub.sent.values())

    def posted(self) -> int:
        return self.rented.cloud.writes.count("POST /pods")


@pytest.fixture(scope="module")
def filled(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    directory = tmp_path_factory.mktemp("rented-fill")
    subprocess.run([sys.executable, "-c", MAKE, directory / "hub", ""], check=True)
    with rented_runpod(directory, engine="stand-in") as made:
        subnet = ipaddress.ip_network(made.lab.record.networks[0].subnet)
        here = str(next(subnet.hosts()))
        made.pods.address, made.pods.mounted = here, "/workspace"
        token = directory / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        repository = Repository(directory / "hub/tree", gated=True, readers=frozenset({"ann"}))
        with Hub({MODEL: repository}, tokens={TOKEN: "ann"}, address=here) as hub:
            made.variables |= {
                "runpod_fill": True,
                "models_dir": "/workspace/models",
                "engines": [{**made.variables["engines"][0], "model": MODEL}],
                "huggingface_token_file": str(token),
                # The model has no configuration worth the name.
                "plan_allow_unchecked": True,
                "sources_environment": {
                    **made.variables["sources_environment"],
                    "HF_ENDPOINT": hub.url,
                },
            }
            yield Filled(made, hub, directory / "hub/tree")


def quiet(ran: Ran) -> None:
    assert ran.status == 0, ran.output
    assert KEY not in ran.output and TOKEN not in ran.output


def test_a_check_says_what_the_filling_would_cost(filled: Filled) -> None:
    ran = filled.rented.run("--check", *FILL)
    quiet(ran)
    (told,) = ran.evidence("fill")
    assert told["summary"] == f"1 of 1 would be rented: 8x cpu3c in {PLACE}, $0.24/h"
    assert filled.rented.cloud.writes == []


def test_a_run_that_is_killed_leaves_a_pod_that_orphans_names_with_its_price(
    filled: Filled,
) -> None:
    site, hub = filled.rented, filled.hub
    hub.throttle(SIZE / 600)
    running = site.start(*FILL)

    def fetches() -> bool:
        assert running.process.poll() is None, running.console.read_text()
        return filled.sent > 1 << 18

    wait_until(fetches, 10 * MINUTE, "the first bytes on the volume")
    running.kill()
    (pod,) = site.cloud.account.pods.values()
    assert pod.wanted["cpu"] == {"id": "cpu3c", "vcpuCount": 8}
    assert TOKEN not in str(site.cloud.bodies)
    listed = site.run(playbook="playbooks/orphans.yml")
    quiet(listed)
    told = " ".join(listed.output.split())
    assert "of this cluster, to fill its network volume" in told
    assert "8x cpu3c in US-KS-2, $0.24/h" in told
    assert "1 instance that this cluster does not claim, $0.24/h" in told
    hub.throttle(0)


def test_the_next_run_goes_on_with_that_pod_ends_it_and_says_what_it_cost(filled: Filled) -> None:
    site = filled.rented
    ran = site.start("-vvv", *FILL).result(15 * MINUTE)
    quiet(ran)
    told = ran.evidence("fill")[-1]["summary"]
    assert f"network volume r1 in {PLACE} is filled; 1 x 8x cpu3c in {PLACE} ended after" in told
    assert told.endswith(f"next: provision, which rents 2 x {KIND}")
    assert site.cloud.account.pods == {} and filled.posted() == 1
    (volume,) = site.cloud.account.volumes.values()
    assert volume["name"] == "r1"
    # What the killed run had fetched was not fetched again, but for pieces that were open.
    assert SIZE <= filled.sent < 2 * SIZE
    kept = [path for path in site.clone.directory.rglob("*") if path.is_file()]
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []


def test_a_second_run_rents_nothing_and_changes_nothing(filled: Filled) -> None:
    site = filled.rented
    site.cloud.log.clear()
    ran = site.run(*FILL)
    quiet(ran)
    assert "was filled at" in ran.evidence("fill")[-1]["summary"]
    assert (ran.changed, site.cloud.writes) == ([], [])


def test_the_cluster_finds_the_weights_on_the_volume(filled: Filled) -> None:
    site, sent = filled.rented, filled.sent
    site.cloud.log.clear()
    ran = site.start(*WEIGHTS).result(15 * MINUTE)
    quiet(ran)
    assert site.cloud.writes == ["POST /clusters"]
    assert filled.sent == sent
    for name in sorted(site.machines.rented.values()):
        found = digests(site.lab, name, "/workspace/models/org--tiny")
        assert len(found.splitlines()) == len(list(filled.tree.iterdir()))
    site.cloud.log.clear()
    again = site.run(*FILL)
    assert again.status == 0 and site.cloud.writes == [] and again.changed == []
    assert "filled by the pods" in again.evidence("fill")[-1]["summary"]
    ended = site.run(playbook="playbooks/teardown.yml")
    quiet(ended)
    assert (site.cloud.account.clusters, site.cloud.account.pods) == ({}, {})


def test_a_pod_of_its_own_sends_the_load_to_the_published_door(
    filled: Filled,
) -> None:
    site = filled.rented
    clients = site.clone.directory / "clients.yml"
    words = [sys.executable, "-m", "vllm_ansible.console", "key", "add", "ann", "--file", clients]
    client = site.clone.directory / "ann.key"
    client.write_text(
        subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    )
    client.chmod(0o600)
    (engine,) = site.variables["engines"]
    site.variables |= {
        "runpod_fill": False,
        "runpod_load": True,
        # What the image of the lab starts by itself.
        "runpod_start_command": "/start.sh",
        "runpod_publish_door": True,
        "door_address": "all",
        "door_clients_file": str(clients),
        "node_count": 1,
        "engines": [
            {**engine, "model": "package:smollm2-135m-instruct", "nodes": 1, "executor": "mp"}
        ],
        "benchmark_load_key_file": str(client),
    }
    ran = site.start().result(25 * MINUTE)
    quiet(ran)
    (evidence,) = ran.evidence("benchmark")
    (figures,) = evidence["values"]["engines"]
    assert figures["generator"]["host"] == "r1-load"
    assert figures["generator"]["url"].startswith(f"https://{site.pods.address}:")
    pods = site.cloud.account.pods.values()
    assert sorted(pod.wanted["ports"] for pod in pods) == [["22/tcp"], ["22/tcp", "9443/tcp"]]
    assert f"${3.5 + 0.24:.2f}/h for 2 rented machines" in " ".join(ran.output.split())


def test_a_pod_whose_container_starts_again_on_its_disk_serves_without_a_run(
    filled: Filled,
) -> None:
    site = filled.rented
    (pod,) = [one for one in site.cloud.account.pods.values() if "gpu" in one.wanted]
    assert pod.wanted["args"].startswith("bash -c 'if [ -x /opt/vllm-ansible/r1/again/start ]")
    name = site.machines.rented[pod.id]
    state = "/opt/vllm-ansible/r1/processes/chat-serve.state.json"
    before = site.lab.run(name, ["cat", state]).stdout
    site.cloud.account.restart(pod.id, kept=True)

    def started() -> bool:
        log = site.lab.run(name, ["cat", "/opt/vllm-ansible/r1/logs/again.log"], check=False)
        return "chat-serve: started again" in log.stdout

    wait_until(started, 5 * MINUTE, "the engine to be started by the pod itself")
    after = site.lab.run(name, ["cat", state]).stdout
    assert after != before
    (site.clone.directory / "state/r1/runpod-instances.json").unlink()
    ran = site.start("--tags", "validate,provision,prepare,plan,cluster,serve").result(15 * MINUTE)
    quiet(ran)
    (served,) = ran.evidence("serve")
    (engine,) = served["values"]["engines"]
    assert engine["answer"].startswith("The capital of France is Paris")
    # It found the engine as the pod had started it.
    assert site.lab.run(name, ["cat", state]).stdout == after


def test_teardown_ends_the_pod_that_sent_the_load_as_well(filled: Filled) -> None:
    site = filled.rented
    ended = site.run("-e", "runpod_remove_volume=true", playbook="playbooks/teardown.yml")
    quiet(ended)
    account = site.cloud.account
    assert (account.clusters, account.pods, account.volumes) == ({}, {}, {})
