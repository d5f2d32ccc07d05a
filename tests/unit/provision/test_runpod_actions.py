"""Renting, listing and ending pods as tasks of real plays, against the emulated RunPod."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.provision.meter import look
from vllm_ansible.provision.provider import provider

from . import runpod_rental
from .rental import Site, machines
from .runpod_rental import KEY
from .runpod_world import H200, KANSAS


@pytest.fixture
def site(tmp_path: Path, play: Any) -> Iterator[Site]:
    with runpod_rental.cloud() as cloud:
        said = {"provision_provider": "runpod", **runpod_rental.variables(tmp_path, cloud)}
        yield Site(tmp_path, cloud, play, said)
        assert cloud.misfits == []


def test_pods_are_rented_once_told_with_their_price_and_ended_without_a_key_in_any_output(
    site: Site,
) -> None:
    played = site(
        machines("rent"),
        machines("again"),
        machines("end", state="absent"),
        machines("end again", state="absent"),
        flags=("-vvv",),
    )
    rented = played["rent"]
    volume = f"network volume r1 (1024 GB) in {KANSAS}"
    assert rented["launched"] == [0, 1]
    assert rented["evidence"]["summary"] == f"2 x {H200} in {KANSAS}, $56.00/h; {volume}"
    assert [one["private_address"] for one in rented["machines"]] == ["10.65.0.2", "10.65.0.3"]
    assert not played["again"]["changed"]
    ended = played["end"]
    assert ended["evidence"]["summary"].startswith("2 machines ended, none is listed any more;")
    assert ended["evidence"]["summary"].endswith(
        "; network volume r1 is kept unless runpod_remove_volume is true"
    )
    assert not played["end again"]["changed"]
    writes = [one.split("/")[:2] for one in site.cloud.writes]
    assert writes == [["POST ", "network-volumes"], ["POST ", "clusters"], ["DELETE ", "clusters"]]
    account = site.cloud.account
    assert (account.clusters, account.pods, len(account.volumes)) == ({}, {}, 1)
    known = (site.directory / "state/r1/known_hosts").read_text().splitlines()
    assert known == [f"[198.51.100.{n}]:{22001 + n} ssh-ed25519 AAAA" for n in (1, 2)]
    assert KEY not in str(played.tasks) + played.printed
    kept = [path for path in (site.directory / "state").rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if KEY in path.read_text()]


def test_a_check_asks_for_lists_only_before_and_after(site: Site) -> None:
    told = site(machines("rent"), {"name": "orphans", "rented_orphans": {}}, flags=("--check",))
    assert told["rent"]["changed"]
    assert told["rent"]["evidence"]["summary"] == (
        f"2 of 2 would be rented: {H200} in {KANSAS}, $56.00/h"
    )
    assert site.cloud.writes == []
    assert {method for method, _, _ in site.cloud.log} == {"GET"}
    site(machines("rent"))
    site.cloud.log.clear()
    told = site(machines("rent"), machines("end", state="absent"), flags=("--check",))
    assert not told["rent"]["changed"]
    assert told["end"]["changed"] and told["end"]["msg"].endswith("would be ended")
    assert site.cloud.writes == []


def test_refusals_reach_the_task_and_what_nobody_claims_is_ended_by_id_alone(site: Site) -> None:
    account = site.cloud.account
    account.faults.forbidden.add(("POST", "/clusters"))
    refused = site(machines("rent"))["rent"]
    assert refused["failed"] and refused["msg"] == "RunPod refused: access denied"
    assert refused["fix"].startswith("give the key read and write access")
    account.faults.forbidden.clear()
    volume = account.create_volume({"name": "old", "dataCenter": KANSAS, "size": 10})["id"]
    told = site(
        machines("rent", silence_seconds=1),
        {"name": "list", "rented_orphans": {}},
        {"name": "stranger", "rented_orphans": {"end": ["nobody"]}},
        {"name": "end", "rented_orphans": {"end": [volume]}},
        machines("all", state="absent"),
        runpod_remove_volume=True,
    )
    assert [one["id"] for one in told["list"]["orphans"]] == [volume]
    assert told["stranger"]["failed"] and told["stranger"]["found"] == "nobody"
    assert told["end"]["changed"]
    # What has happened, not what would.
    assert told["all"]["evidence"]["summary"].endswith(
        f"; network volume r1 in {KANSAS} is deleted with all that was in it"
    )
    assert (account.clusters, account.pods, account.volumes) == ({}, {}, {})


def test_whoever_watches_ends_the_pods_at_a_limit(site: Site) -> None:
    cloud = provider("runpod")
    wanted = cloud.settings({**site.variables, "max_hours": 0.0001}, "here")
    cluster = cloud.cluster(wanted, site.directory / "state")
    fleet = cluster.fleet()
    fleet.launch([0, 1], fleet.offers()[0])
    assert len(cluster.machines()) == 2
    fleet.forget()
    told: list[str] = []
    assert not look(cluster, wanted, told.append, lambda: wanted)
    assert told[-1] == "2 machines ended, 0 left"
    assert site.cloud.account.pods == {} and len(site.cloud.account.volumes) == 1


def fill(name: str, **more: Any) -> dict[str, Any]:
    return machines(name, part="fill", holds="a model", **more)


def test_a_volume_is_filled_once_said_with_its_cost_and_then_accelerators_are_rented(
    site: Site,
) -> None:
    site.variables |= {"runpod_fill": True, "models_dir": "/workspace/models"}
    told = site(
        fill("fill"),
        fill("continue"),
        fill("end", state="absent"),
        fill("filled"),
        machines("other", part="fill", holds="another model"),
        machines("other ends", part="fill", holds="another model", state="absent"),
        machines("rent"),
        machines("third", part="fill", holds="a third model"),
        machines("all", state="absent"),
    )
    (pod,) = told["fill"]["machines"]
    assert (pod["type"], pod["cents_per_hour"]) == ("8x cpu5c", 32)
    assert told["fill"]["changed"] and not told["continue"]["changed"]
    summary = told["end"]["evidence"]["summary"]
    assert summary.startswith(f"network volume r1 in {KANSAS} is filled; 1 x 8x cpu5c in {KANSAS}")
    assert "about $0.0" in summary and summary.endswith(f"next: provision, which rents 2 x {H200}")
    assert not told["filled"]["changed"] and not told["filled"]["needed"]
    assert "was filled at" in told["filled"]["evidence"]["summary"]
    # Other models are not there yet; once accelerators are paid for, their pods fetch them.
    assert told["other"]["changed"]
    assert told["rent"]["launched"] == [0, 1]
    assert not told["third"]["needed"]
    writes = [one.split("/")[:2] for one in site.cloud.writes]
    assert writes == [
        ["POST ", "network-volumes"],
        *(["POST ", "pods"], ["DELETE ", "pods"]) * 2,
        ["POST ", "clusters"],
        ["DELETE ", "clusters"],
    ]
    # A volume that was made anew is empty, whatever was in the one before.
    account = site.cloud.account
    account.volumes.clear()
    assert site(fill("again"))["again"]["changed"]
    assert site(machines("all", state="absent"))["all"]["changed"]
    assert account.pods == {}


def test_a_limit_of_an_hours_price_counts_the_pods_beside_the_cluster(site: Site) -> None:
    said = {"runpod_load": True, "runpod_publish_door": True, "door_address": "all"}
    told = site(machines("rent"), machines("load", part="load"), max_usd_per_hour=56.1, **said)
    assert told["rent"]["launched"] == [0, 1]
    assert "1 machines would cost $0.32 an hour, $0.10 are allowed" in told["load"]["msg"]
    assert "runpod_load: false" in told["load"]["fix"]
    assert site(machines("load", part="load"), max_usd_per_hour=57, **said)["load"]["changed"]
    # One that is watched ends with all others.
    cloud = provider("runpod")
    wanted = cloud.settings({**site.variables, **said, "max_hours": 0.00001}, "here")
    cluster = cloud.cluster(wanted, site.directory / "state")
    lines: list[str] = []
    assert not look(cluster, wanted, lines.append, lambda: wanted)
    assert lines[-1] == "3 machines ended, 0 left"
    assert site.cloud.account.pods == {}
