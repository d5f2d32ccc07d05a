"""The load of the benchmark from a rented pod to the published door of a rented cluster.

RunPod's API is emulated and vLLM is a stand-in; the pods are hosts of a lab without systemd, each
with a network of its own. What RunPod publishes of a pod is a port of this machine.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .clone import MINUTE, Ran
from .rented_runpod import PLACE, USD, RentedRunpod, rented_runpod

pytestmark = [pytest.mark.lab, pytest.mark.soak]
DOOR = 9443
BENCHMARK = "playbooks/benchmark.yml"


@pytest.fixture(scope="module")
def site(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RentedRunpod]:
    """Return one pod that serves behind its published door, and room for one that sends load."""
    directory = tmp_path_factory.mktemp("rented-runpod-load")
    with rented_runpod(directory, engine="stand-in") as made:
        clients, key = directory / "clients.yml", directory / "ann.key"
        words = [sys.executable, "-m", "vllm_ansible.console", "key", "add", "ann"]
        added = subprocess.run([*words, "--file", clients], capture_output=True, check=True)
        key.write_bytes(added.stdout)
        key.chmod(0o600)
        (engine,) = made.variables["engines"]
        made.variables |= {
            "node_count": 1,
            "engines": [{**engine, "nodes": 1}],
            "door_clients_file": str(clients),
            "door_address": "all",
            "runpod_publish_door": True,
            "runpod_load": True,
            "benchmark_load_key_file": str(key),
        }
        ran = made.start("--skip-tags", "verify,benchmark").result(25 * MINUTE)
        assert ran.status == 0, ran.output
        yield made


def figures(ran: Ran) -> dict[str, Any]:
    """Return what a benchmark of the one engine has kept."""
    assert ran.status == 0, ran.output
    (evidence,) = ran.evidence("benchmark")
    (found,) = evidence["values"]["engines"]
    return dict(found)


def served(site: RentedRunpod) -> list[str]:
    """Return the lines that the door has of its client's requests."""
    (log,) = site.inside("cat", "/opt/vllm-ansible/r1/logs/door.log", ranks=1)
    return [line for line in log.splitlines() if '"client": "ann"' in line]


def test_where_no_pod_can_be_had_the_stage_says_what_it_has_waited_for(site: RentedRunpod) -> None:
    cpu = site.cloud.account.cpus["cpu3c"]
    cpu.left[PLACE] = 0
    failure = site.run("-e", "provision_load_seconds=5", playbook=BENCHMARK).failure
    cpu.left[PLACE] = 8
    wanted = f"capacity for a machine that sends the load: none of 8x cpu3c in {PLACE}"
    assert wanted in failure["msg"]
    assert len(site.cloud.account.pods) == 1


def test_all_requests_come_from_the_rented_pod_through_the_published_door(
    site: RentedRunpod,
) -> None:
    (engine,) = site.cloud.account.pods.values()
    port = engine.exposed[DOOR]
    assert served(site) == [] and site.pods.callers(engine.id, DOOR) == set()
    ran = site.start("-vvv", playbook=BENCHMARK).result(25 * MINUTE)
    found = figures(ran)
    (load,) = [one for one in site.cloud.account.pods.values() if one.id != engine.id]
    assert load.wanted["cpu"] == {"id": "cpu3c", "vcpuCount": 8}
    assert found["generator"]["host"] == "r1-load"
    assert found["generator"]["url"] == f"https://{site.pods.address}:{port}"
    # Nobody else has connected there, and the door has counted at least as many requests.
    host = site.lab.record.host(site.machines.rented[load.id])
    assert site.pods.callers(engine.id, DOOR) == {host.addresses["front"]}
    assert len(served(site)) >= found["requests"] > 0
    print(found["generator"], found["requests"], len(served(site)))
    key = Path(site.variables["benchmark_load_key_file"]).read_text().strip()
    assert key not in ran.output
    assert f"${USD + 0.24:.2f}/h for 2 rented machines" in " ".join(ran.output.split())


def test_a_second_run_rents_and_changes_nothing(site: RentedRunpod) -> None:
    site.cloud.log.clear()
    ran = site.run(playbook=BENCHMARK)
    figures(ran)
    assert (ran.changed, site.cloud.writes) == ([], [])


def test_teardown_ends_the_pod_of_the_load_with_all(site: RentedRunpod) -> None:
    ran = site.run("-e", "runpod_remove_volume=true", playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    account = site.cloud.account
    assert (account.clusters, account.pods, account.volumes) == ({}, {}, {})
