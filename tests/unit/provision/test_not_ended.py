"""What a run leaves alone: fit machines, machines of others, doors that were narrowed."""

from __future__ import annotations

import pytest

from .rental import Site, machines
from .world import EAST


def test_machines_that_are_all_unfit_are_not_ended(site: Site) -> None:
    found = site(machines("rent"))["rent"]["machines"]
    rejected = {one["id"]: "no answer for 600 s" for one in found}
    told = site(machines("again", rejected=rejected))["again"]
    assert told["failed"]
    assert "none of 2 machines is fit" in told["msg"] and "none was ended" in told["msg"]
    assert "lambda_ssh_from" in told["msg"]
    assert site.paid_for == ["r1-0", "r1-1"]


@pytest.mark.parametrize(
    ("reason", "stays"),
    [
        ("no answer for 90 s: ubuntu@h: Permission denied (publickey).", True),
        ("no answer for 90 s: Host key verification failed.", True),
        ("cuInit error 802", False),
    ],
)
def test_the_only_machine_is_not_ended_for_a_login_that_is_refused(
    site: Site, reason: str, stays: bool
) -> None:
    (found,) = site(machines("rent"), node_count=1)["rent"]["machines"]
    told = site(machines("again", rejected={found["id"]: reason}), node_count=1)["again"]
    assert told.get("failed", False) == stays
    assert (found["id"] in site.cloud.account.instances) == stays


def test_machines_that_all_show_no_key_are_not_ended(site: Site) -> None:
    (site.directory / "bin/ssh-keyscan").write_text("#!/bin/sh\n")
    told = site(machines("rent", ssh_seconds=0))["rent"]
    assert told["failed"]
    assert "none of 2 machines is fit" in told["msg"]
    assert "showed no SSH key within 0 s" in told["msg"]
    assert site.paid_for == ["r1-0", "r1-1"]


def test_one_machine_that_never_shows_a_key_is_not_replaced_for_ever(site: Site) -> None:
    (site.directory / "bin/ssh-keyscan").write_text("#!/bin/sh\n")
    told = site(machines("rent", ssh_seconds=0), node_count=1)["rent"]
    assert told["failed"]
    assert "and so did those that they replace" in told["msg"]
    assert site.cloud.writes.count("/api/v1/instance-operations/launch") == 3


def test_who_may_reach_the_machines_is_narrowed_without_a_launch(site: Site) -> None:
    site(machines("rent"))
    told = site(machines("again"), lambda_ssh_from=["198.51.100.7"])["again"]
    assert told["changed"] and told["launched"] == []
    (ruleset,) = site.cloud.account.rulesets.values()
    assert [rule["source_network"] for rule in ruleset["rules"]] == ["198.51.100.7"]
    # As the API may list it.
    ruleset["rules"][0]["source_network"] = "198.51.100.7/32"
    assert not site(machines("third"), lambda_ssh_from=["198.51.100.7"])["third"]["changed"]


@pytest.mark.parametrize("state", ["present", "absent"])
def test_machines_that_somebody_else_has_rented_are_left_to_them(site: Site, state: str) -> None:
    site(machines("rent"))
    for one in site.cloud.account.instances.values():
        for tag in one["tags"]:
            if tag["key"] == "vllm-ansible:owner":
                tag["value"] = "ann@elsewhere"
    site.cloud.log.clear()
    told = site(machines("again", state=state))["again"]
    assert told["failed"]
    assert told["msg"].startswith("the machines of cluster r1 were rented by ann@elsewhere")
    assert "lambda_adopt: true" in told["msg"]
    assert site.cloud.writes == []
    adopted = site(machines("again", state=state), lambda_adopt="true")["again"]
    assert not adopted.get("failed"), adopted


def test_a_second_machine_of_a_slot_is_an_orphan(site: Site) -> None:
    site(machines("rent"))
    first = next(iter(site.cloud.account.instances.values()))
    tags = [tag for tag in first["tags"] if tag["key"] != "vllm-ansible:since"]
    again = {
        "region_name": EAST,
        "instance_type_name": first["instance_type"]["name"],
        "ssh_key_names": ["mine"],
        "name": first["name"],
        "tags": [*tags, {"key": "vllm-ansible:since", "value": "9999999999"}],
    }
    (second,) = site.cloud.account.launch(again)["instance_ids"]
    look = {"name": "look", "lambda_orphans": {}}
    check = {"name": "check", "lambda_orphans": {"end": [second]}, "check_mode": True}
    told = site(look, check)
    assert [one["id"] for one in told["look"]["orphans"]] == [second]
    assert "whose slot 0 has a machine already" in told["look"]["lines"][0]
    assert told["check"]["lines"][0].startswith("would be ended: ")
