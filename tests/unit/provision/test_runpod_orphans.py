"""What an account at RunPod pays for and a cluster does not claim."""

from __future__ import annotations

from vllm_ansible.provision.orphans import Orphan
from vllm_ansible.provision.runpod_lists import Lists
from vllm_ansible.provision.runpod_orphans import orphans

from .runpod_world import H200, KANSAS, STATE, TEXAS, World

HOUR = 3600.0


def found(world: World, cluster: str = "r1") -> list[Orphan]:
    volumes, bills = world.api.volumes(), world.api.volume_bills()
    wanted = world.wanted(cluster)
    return orphans(Lists(world.api, cluster, STATE), volumes, bills, wanted, lambda: world.now)


def test_the_clusters_own_pods_and_volume_are_none(runpod: World) -> None:
    runpod.settings = {"volume": "r1", "volume_gb": 100}
    runpod.converge()
    assert found(runpod) == []
    # Also when the pods are gone: it waits for the next ones.
    runpod.end()
    assert found(runpod) == []


def test_another_cluster_is_listed_with_owner_age_and_price_of_all_its_pods(runpod: World) -> None:
    runpod.converge("r2", types=(H200,))
    runpod.now += 2 * HOUR
    (one,) = found(runpod)
    assert (one.cluster, one.owner, one.cents_per_hour) == ("r2", "ann@here", 2 * 8 * 350)
    assert "of cluster r2, rented by ann@here; 2 pods of 8x NVIDIA H200 in US-KS-2" in one.line()
    assert "$56.00/h, 2.0 h" in one.line()


def test_what_has_just_been_launched_has_its_price_before_runpod_lists_one(runpod: World) -> None:
    """As after a run that was killed: no pod runs yet, or none is even listed."""
    runpod.account.faults.boot_seconds = 600
    fleet = runpod.fleet("r2", types=(H200,))
    fleet.launch([0, 1], fleet.offers()[0])
    wanted = {"name": "tom", "image": "i", "cpu": {"id": "cpu5c", "vcpuCount": 8}}
    runpod.account.create_pod({**wanted, "dataCenterIds": [KANSAS]})
    assert [one.cents_per_hour for one in found(runpod)] == [2 * 8 * 350, 8 * 4]
    runpod.account.faults.listing_seconds = 600
    (one,) = found(runpod)
    assert (one.cents_per_hour, one.type) == (2 * 8 * 350, "2 pods of 8x NVIDIA H200")


def test_pods_without_a_living_cluster_are_orphans_of_any_cluster(runpod: World) -> None:
    runpod.converge()
    runpod.account.faults.outlived = 1
    (cluster,) = runpod.account.clusters
    runpod.account.delete_cluster(cluster)
    one, other = found(runpod)
    assert one.why == other.why == f"its cluster {cluster} is gone"
    assert {one.id, other.id} == set(runpod.account.pods)
    assert one.cents_per_hour == 8 * 350


def test_a_second_cluster_of_one_name_and_a_strangers_pod_are_orphans(runpod: World) -> None:
    runpod.converge()
    fleet = runpod.fleet()
    runpod.now += 60
    second = fleet.launch([0, 1], fleet.offers()[1])
    fleet.forget()
    wanted = {"name": "tom", "image": "i", "gpu": {"id": "NVIDIA H200"}, "dataCenterIds": [TEXAS]}
    stranger = runpod.account.create_pod(wanted)
    runpod.now += 200
    assert {one.id: one.why for one in found(runpod)} == {
        second: "of this cluster, which has another one already",
        stranger["id"]: "not rented by vllm-ansible",
    }


def test_the_cluster_that_serves_is_not_the_orphan_where_an_older_one_was_stopped(
    runpod: World,
) -> None:
    runpod.converge()
    (stopped,) = runpod.account.clusters
    for pod in runpod.account.pods.values():
        pod.status = "EXITED"
    runpod.now += 60
    fleet = runpod.fleet()
    serving = fleet.launch([0, 1], fleet.offers()[1])
    fleet.forget()
    runpod.now += 200
    assert {one.id for one in found(runpod)} == {stopped} != {serving}


def test_a_volume_that_no_pod_has_costs_what_yesterdays_bill_says(runpod: World) -> None:
    runpod.settings = {"volume": "r1", "volume_gb": 100}
    runpod.converge("r2", volume="r2")
    made = runpod.account.create_volume({"name": "old", "dataCenter": KANSAS, "size": 1000})
    new = runpod.account.create_volume({"name": "new", "dataCenter": KANSAS, "size": 10})
    runpod.account.bills[made["id"]] = 2.4
    one, other = (one for one in found(runpod) if one.status == "not mounted")
    assert (one.id, one.cents_per_hour) == (made["id"], 10)
    assert "1000 GB of network volume in US-KS-2, $0.10/h" in one.line()
    assert (other.id, other.cents_per_hour) == (new["id"], 0)
    assert "its price on no bill yet" in other.why
