"""RunPod from an empty account to an answer and back: its API emulated, its pods real over SSH."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .clone import MINUTE, Ran, wait_until
from .rented_runpod import KEY, KIND, PLACE, RentedRunpod, rented_runpod

pytestmark = [pytest.mark.lab, pytest.mark.soak]
RENT = ("--tags", "provision")


@pytest.fixture(scope="module")
def site(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RentedRunpod]:
    with rented_runpod(tmp_path_factory.mktemp("rented-runpod"), engine="stand-in") as made:
        yield made


def written(site: RentedRunpod) -> list[str]:
    """Return the requests that could change something since the last time."""
    found = site.cloud.writes
    site.cloud.log.clear()
    return found


def answered(ran: Ran) -> None:
    assert ran.status == 0, ran.output
    (served,) = ran.evidence("serve")
    (engine,) = served["values"]["engines"]
    assert engine["answer"].startswith("The capital of France is Paris")


def test_a_check_only_lists_and_the_spend_limit_rents_nothing(site: RentedRunpod) -> None:
    ran = site.run("--check", *RENT)
    assert ran.status == 0, ran.output
    assert f"2 of 2 would be rented: {KIND} in {PLACE}, $7.00/h" in ran.output
    failure = site.run("-e", "runpod_spend_limit=5", *RENT).failure
    assert "2 pods would cost $7.00/h: beyond the account's spend limit" in failure["msg"]
    site.cloud.account.faults.forbidden.add(("POST", "/network-volumes"))
    assert "access denied" in site.run(*RENT).failure["msg"]
    site.cloud.account.faults.forbidden.clear()
    assert site.cloud.account.pods == {} == site.cloud.account.volumes
    # Of the three runs the last alone tried to make anything, and was not allowed to.
    assert written(site) == ["POST /network-volumes"]


def test_a_controller_killed_while_it_launches_launches_nothing_twice(site: RentedRunpod) -> None:
    """On a bad day: crowded, no room at first, a lost answer, and addresses that come late."""
    cloud, faults = site.cloud, site.cloud.account.faults
    cloud.crowd_requests = faults.full = 1
    faults.boot_seconds, faults.ssh_seconds, faults.overlay_seconds = 2, 4, 6
    faults.listing_seconds = 5
    # Carried out, and answered to nobody for as long as the first run lives.
    cloud.lose_launch_replies = 100
    running = site.start(*RENT)

    def launched() -> bool:
        assert running.process.poll() is None, running.console.read_text()
        return ("POST", "/clusters", 201) in cloud.log

    wait_until(launched, 5 * MINUTE, "a launch")
    running.kill()
    cloud.lose_launch_replies = 0
    ran = site.run(*RENT)
    assert ran.status == 0, ran.output
    assert {200, 201, 400, 429} <= {status for _, _, status in cloud.log}
    assert len(cloud.account.clusters) == 1 and len(cloud.account.pods) == 2
    assert [status for _, path, status in cloud.log if path == "/clusters"].count(201) == 1
    (volume,) = cloud.account.volumes.values()
    assert (volume["name"], volume["size"]) == ("r1", 1024)
    for one in cloud.account.pods.values():
        assert one.wanted["mounts"]["network"][0]["volumeId"] == volume["id"]


def test_all_of_it_serves_a_true_answer_over_the_overlay_network(site: RentedRunpod) -> None:
    ran = site.start("-vvv").result(25 * MINUTE)
    answered(ran)
    (planned,) = ran.evidence("plan")
    assert "TP1 PP2 on r1-0, r1-1" in planned["summary"]
    assert "EXEC" in ran.output and KEY not in ran.output
    assert re.search(r"\$\d+\.\d\d so far at \$7\.00/h; next: prepare", ran.output)
    kept = [path for path in site.clone.directory.rglob("*") if path.is_file()]
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []
    assert site.inside("cat", "/proc/1/comm") == ["init\n", "init\n"]
    overlay = [one.overlay for one in site.cloud.account.pods.values()]
    found = site.inside("cat", "/opt/vllm-ansible/r1/processes/chat-ray.json")
    assert all(address in text for address, text in zip(overlay, found, strict=True))


def test_a_second_run_changes_nothing_also_where_ports_have_moved(site: RentedRunpod) -> None:
    written(site)
    ran = site.run()
    answered(ran)
    assert ran.changed == []
    site.cloud.account.move_ports()
    (site.clone.directory / "state/r1/runpod-instances.json").unlink()
    looked = site.run(playbook="playbooks/status.yml")
    assert looked.status == 0, looked.output
    assert "chat-serve: running" in " ".join(looked.output.split())
    assert written(site) == []


def test_a_pod_that_restarted_on_an_empty_disk_is_brought_up_again(site: RentedRunpod) -> None:
    restarted = next(one for one in site.cloud.account.pods.values() if one.rank == 1)
    site.cloud.account.restart(restarted.id)
    (site.clone.directory / "state/r1/runpod-instances.json").unlink()
    ran = site.start().result(25 * MINUTE)
    answered(ran)
    assert written(site) == []
    again = site.run()
    answered(again)
    assert again.changed == []


def test_teardown_leaves_an_empty_listing_also_of_pods_that_outlive_their_cluster(
    site: RentedRunpod,
) -> None:
    account = site.cloud.account
    account.faults.outlived = 1
    ran = site.run("-e", "runpod_remove_volume=true", playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    (told,) = ran.evidence("machines ended")
    assert (
        "2 machines ended, none is listed any more; the cluster has cost about $"
        in (told["summary"])
    )
    assert (account.clusters, account.pods, account.volumes) == ({}, {}, {})
    orphans = site.run(playbook="playbooks/orphans.yml")
    assert orphans.status == 0, orphans.output
    again = site.run(playbook="playbooks/teardown.yml")
    assert again.status == 0 and again.changed == [], again.output
