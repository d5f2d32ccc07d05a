"""Renting, listing and ending as tasks of real plays, against the emulated cloud."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from .rental import KEY, Site, machines
from .world import EAST, GH200


def test_machines_are_rented_once_told_with_their_price_and_ended(site: Site) -> None:
    played = site(
        machines("rent"),
        machines("again"),
        machines("end", state="absent"),
        machines("end again", state="absent"),
    )
    rented = played["rent"]
    assert rented["changed"] and rented["launched"] == [0, 1]
    firewall = f"firewall ruleset vllm-ansible-r1 in {EAST}"
    assert rented["evidence"]["summary"] == f"2 x {GH200} in {EAST}, $2.98/h; {firewall}"
    assert [one["address"] for one in rented["machines"]] == ["198.51.100.1", "198.51.100.2"]
    assert not played["again"]["changed"]
    ended = played["end"]
    assert ended["changed"]
    assert ended["evidence"]["summary"].startswith("2 machines ended, none is listed any more;")
    assert not played["end again"]["changed"]
    assert site.paid_for == [] and site.cloud.account.rulesets == {}
    known = (site.directory / "state/r1/known_hosts").read_text().splitlines()
    assert known == [f"198.51.100.{number} ssh-ed25519 AAAA" for number in (1, 2)]
    assert KEY not in str(played.tasks) + played.printed


def test_a_check_asks_for_lists_only_and_says_what_would_be_done(site: Site) -> None:
    told = site(machines("rent"), {"name": "orphans", "rented_orphans": {}}, flags=("--check",))
    assert told["rent"]["changed"]
    assert told["rent"]["evidence"]["summary"] == (
        f"2 of 2 would be rented: {GH200} in {EAST}, $2.98/h"
    )
    dear = site(machines("rent"), flags=("--check",), max_usd_per_hour=2)["rent"]
    assert dear["failed"] and "2 machines would cost $2.98 an hour" in dear["msg"]
    assert site.cloud.writes == []
    site(machines("rent"))
    site.cloud.log.clear()
    told = site(machines("rent"), machines("end", state="absent"), flags=("--check",))
    assert not told["rent"]["changed"]
    assert told["end"]["changed"] and told["end"]["msg"].endswith("would be ended")
    assert site.cloud.writes == []


def test_a_machine_that_was_not_fit_is_replaced_and_said_so(site: Site) -> None:
    first = site(machines("rent"))["rent"]["machines"][1]["id"]
    # It is listed for a while after its end.
    site.cloud.account.faults.terminating_seconds = 600
    told = site(machines("again", rejected={first: "memory differs"}))["again"]
    assert [(one["slot"], one["why"]) for one in told["ended"]] == [(1, "memory differs")]
    assert told["evidence"]["summary"].endswith("slot 1 replaced: memory differs")
    assert site.paid_for == ["r1-0", "r1-1"]
    # Whoever is given its address next is not taken for it.
    known = (site.directory / "state/r1/known_hosts").read_text().splitlines()
    assert sorted(one.split()[0] for one in known) == sorted(
        one["address"] for one in told["machines"]
    )


def test_limits_are_told_and_watched_until_the_end(site: Site) -> None:
    told = site(machines("rent"), max_hours="2")["rent"]
    assert told["evidence"]["summary"].endswith("; ended in 2.0 h at the latest")
    meter = site.directory / "state/r1/lambda-meter.json"
    assert KEY not in meter.read_text()
    assert not site(machines("end", state="absent"), max_hours="2")["end"].get("failed")
    # Whoever watches reads that it ends.
    until = time.monotonic() + 60
    while meter.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_money_that_is_spent_stops_the_run_and_ends_the_machines(site: Site) -> None:
    site(machines("rent"))
    (site.directory / "state/r1/lambda-ledger.json").unlink()
    for one in site.cloud.account.instances.values():
        for tag in one["tags"]:
            if tag["key"].endswith(":since"):
                tag["value"] = str(int(tag["value"]) - 7200)
    refused = site(machines("rent"), max_cost=5)["rent"]
    # And what the play takes.
    assert re.search(r"machines have cost \$(5\.9|6\.)", refused["msg"])
    assert "max_cost is $5.00" in refused["msg"]
    until = time.monotonic() + 60
    while site.paid_for or (site.directory / "state/r1/lambda-meter.json").exists():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_usd_per_hour": 2}, "2 machines would cost $2.98 an hour, $2.00 are allowed"),
        ({"lambda_instance_types": ["gpu_1x_gh20"]}, f"did you mean {GH200}?"),
        ({"lambda_ssh_key_name": "mime"}, "did you mean mine?"),
        ({"lambda_api_key_file": "/nowhere"}, "No such file or directory"),
        ({"max_hours": "two"}, "max_hours is 'two'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_rented(
    site: Site, change: dict[str, Any], words: str
) -> None:
    refused = site(machines("rent"), **change)["rent"]
    assert refused["failed"]
    assert words in " ".join(str(refused.get(name)) for name in ("msg", "found", "fix"))
    assert site.cloud.writes == []


def test_a_full_quota_is_told_in_the_words_of_the_api_with_a_way_out(site: Site) -> None:
    site.cloud.account.faults.quota = 1
    refused = site(machines("rent"))["rent"]
    assert refused["msg"] == "Lambda refused: Quota exceeded."
    assert refused["fix"].startswith("ask Lambda for a larger quota")
    assert site.paid_for == ["r1-0"]


def test_what_nobody_claims_is_listed_and_ended_by_id_alone(site: Site) -> None:
    site(machines("rent"), cluster_name="r2")
    (one, other) = sorted(site.cloud.account.instances)

    def orphans(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "rented_orphans": more}

    told = site(
        orphans("list"),
        orphans("stranger", end=["nobody"]),
        {**orphans("would end", end=[one]), "check_mode": True},
        orphans("end", end=[one]),
        orphans("left"),
    )
    assert told["list"]["lines"][-1] == "2 instances that this cluster does not claim, $2.98/h"
    assert "of cluster r2" in told["list"]["lines"][0]
    assert told["stranger"]["failed"] and told["stranger"]["found"] == "nobody"
    assert told["would end"]["changed"] and told["end"]["changed"]
    assert [one["id"] for one in told["left"]["orphans"]] == [other]
    assert site.cloud.writes.count("/api/v1/instance-operations/terminate") == 1
