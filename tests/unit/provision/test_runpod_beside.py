"""Money of pods beside the cluster, as tasks of real plays against the emulated RunPod."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.provision.cluster import Cluster
from vllm_ansible.provision.ending import end_all
from vllm_ansible.provision.provider import provider

from . import runpod_rental
from .rental import Site, machines
from .runpod_world import KANSAS

FILLING = {"runpod_fill": True, "models_dir": "/workspace/models"}
FILL = {"part": "fill", "holds": "a model"}


@pytest.fixture
def site(tmp_path: Path, play: Any) -> Iterator[Site]:
    with runpod_rental.cloud() as cloud:
        said = {
            "provision_provider": "runpod",
            **runpod_rental.variables(tmp_path, cloud),
            **FILLING,
        }
        yield Site(tmp_path, cloud, play, said)
        assert cloud.misfits == []


def cluster_of(site: Site) -> Cluster:
    cloud = provider("runpod")
    return cloud.cluster(cloud.settings(site.variables, "here"), site.directory / "state")


def opened_elsewhere(path: Path) -> bool:
    """Tell whether another process has a file open, as one has that waits for its lock."""
    for one in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if one.parts[2] != str(os.getpid()) and one.readlink() == path:
                return True
    return False


def aged(site: Site, hours: float) -> None:
    """Have what was rented so far have cost so many hours more, ended as long ago."""
    (file,) = (site.directory / "state/r1").glob("*ledger.json")
    kept = json.loads(file.read_text())
    for one in kept.values():
        one["since"] -= 2 * hours * 3600
        one["until"] -= hours * 3600
    file.write_text(json.dumps(kept))


def test_a_run_that_waited_for_another_one_rents_no_second_pod_to_fill_a_volume(
    site: Site,
) -> None:
    assert site(machines("fill", **FILL))["fill"]["changed"]
    cluster = cluster_of(site)
    site.cloud.log.clear()
    with ThreadPoolExecutor(1) as pool:
        with cluster.alone(lambda _: None):
            second = pool.submit(site, machines("second", **FILL), max_usd_per_hour=100)
            until = time.monotonic() + 120
            while not opened_elsewhere(site.directory / "state/r1/runpod.lock"):
                assert time.monotonic() < until and not second.done(), "it does not wait"
                time.sleep(0.05)
            end_all(cluster.part("fill"), 60, lambda _: None)
            cluster.finished("fill", "a model")
        told = second.result(120)["second"]
    assert not told["needed"] and "was filled at" in told["evidence"]["summary"]
    assert site.cloud.account.pods == {}


def cost(ended: dict[str, Any]) -> float:
    """Return what a task that ended a cluster says that it has cost, in dollars."""
    said = re.search(r"the cluster has cost about \$([0-9.]+[0-9])", ended["evidence"]["summary"])
    assert said, ended
    return float(said[1])


def test_what_filling_has_cost_counts_in_what_the_cluster_may_cost_and_not_in_its_hours(
    site: Site,
) -> None:
    site(machines("fill", **FILL), machines("end", state="absent", **FILL))
    # Ended yesterday, and $7.68 all the same.
    aged(site, 24)
    refused = site(machines("rent"), max_cost=7)["rent"]
    assert "machines have cost $7." in refused["msg"] and "max_cost is $7.00" in refused["msg"]
    assert site.cloud.account.clusters == {}
    end = {"state": "absent"}
    tasks = (machines("rent"), machines("end", **end), machines("anew"), machines("last", **end))
    told = site(*tasks, max_hours=1, max_cost=100)
    assert told["rent"]["launched"] == [0, 1] == told["anew"]["launched"]
    # With what accelerators cost for as long as this test had them.
    assert 7.68 <= cost(told["end"]) < 14
    # What was ended as a whole was told: the next cluster begins at nothing.
    assert cost(told["last"]) < 7


def test_a_launch_that_no_list_shows_yet_keeps_a_volume_from_being_filled_beside_it(
    site: Site,
) -> None:
    """As after a run that was killed: the pods are paid for, and fetch the weights themselves."""
    site.variables["node_count"] = 1
    site.cloud.account.faults.listing_seconds = 600
    assert site(machines("rent", silence_seconds=1))["rent"]["failed"]
    site.cloud.log.clear()
    told = site(machines("fill", silence_seconds=1, **FILL))["fill"]
    assert not told["needed"]
    assert "whose launch RunPod does not list yet" in told["evidence"]["summary"]
    assert site.cloud.writes == []


def test_a_launch_that_was_never_carried_out_keeps_no_volume_from_being_filled(site: Site) -> None:
    site.variables["node_count"] = 1
    site.cloud.account.faults.listing_seconds = 600
    assert site(machines("rent", silence_seconds=1))["rent"]["failed"]
    site.cloud.account.pods.clear()
    site.cloud.account.faults.listing_seconds = 0
    (note,) = (site.directory / "state/r1").glob("*launch*.json")
    kept = json.loads(note.read_text())
    note.write_text(json.dumps({**kept, "at": kept["at"] - 600}))
    assert site(machines("fill", **FILL))["fill"]["needed"]


def test_a_volume_counts_as_filled_although_its_pod_did_not_end(site: Site) -> None:
    account = site.cloud.account
    account.faults.forbidden.add(("DELETE", "/pods/{id}"))
    played = site(machines("fill", **FILL), machines("end", state="absent", **FILL))
    assert played["end"]["failed"] and len(account.pods) == 1
    account.faults.forbidden.clear()
    account.pods.clear()
    assert not site(machines("again", **FILL))["again"]["needed"]
    assert account.pods == {}


def test_a_run_that_finds_no_pod_for_the_load_says_what_it_has_waited_for(site: Site) -> None:
    site(machines("rent"))
    site.cloud.account.cpus["cpu5c"].left[KANSAS] = 0
    told = site(machines("load", part="load", silence_seconds=1))["load"]
    assert told["failed"] and told["msg"].endswith(
        f"capacity for a machine that sends the load: none of 8x cpu5c in {KANSAS}"
    )
    assert "runpod_load: false" in told["fix"]


def test_a_pod_that_nothing_needs_any_more_counts_in_the_price_of_an_hour(site: Site) -> None:
    site(machines("fill", **FILL))
    refused = site(machines("rent"), max_usd_per_hour=56.1, runpod_fill=False)["rent"]
    assert "$56.00 an hour" in refused["msg"] and "$55.78 are allowed" in refused["msg"]


def test_a_cluster_that_is_not_ended_keeps_no_pod_beside_it_from_its_end(site: Site) -> None:
    site(machines("rent"), machines("load", part="load"))
    account = site.cloud.account
    account.faults.forbidden.add(("DELETE", "/clusters/{id}"))
    refused = site(machines("end", state="absent"))["end"]
    assert refused["msg"] == "RunPod refused: access denied"
    assert len(account.pods) == 2 and len(account.clusters) == 1
