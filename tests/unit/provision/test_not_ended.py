"""What a run leaves alone: fit machines, machines of others, doors that were narrowed."""

from __future__ import annotations

import fcntl
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from .rental import KEYSCAN, ROOT, Site, machines
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
    # Of another controller: this state/ has launched none of them.
    (site.directory / "state/r1/lambda-state-id").unlink()
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
    look = {"name": "look", "rented_orphans": {}}
    check = {"name": "check", "rented_orphans": {"end": [second]}, "check_mode": True}
    told = site(look, check)
    assert [one["id"] for one in told["look"]["orphans"]] == [second]
    assert "whose slot 0 has a machine already" in told["look"]["lines"][0]
    assert told["check"]["lines"][0].startswith("would be ended: ")


def rename_owner(site: Site) -> None:
    """Let the machines have been rented under another name of this machine."""
    for one in site.cloud.account.instances.values():
        for tag in one["tags"]:
            if tag["key"] == "vllm-ansible:owner":
                tag["value"] = "ann@container-1"


@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_this_state_has_launched_is_ours_whatever_this_machine_is_called(
    site: Site, state: str
) -> None:
    site(machines("rent"))
    rename_owner(site)
    told = site(machines("again", state=state))["again"]
    assert not told.get("failed"), told
    assert site.paid_for == ([] if state == "absent" else ["r1-0", "r1-1"])


def tag(instance: dict[str, Any], **values: str | None) -> None:
    """Give a machine other tags, or none."""
    names = {f"vllm-ansible:{name}": value for name, value in values.items()}
    kept = [one for one in instance["tags"] if one["key"] not in names]
    more = [{"key": name, "value": value} for name, value in names.items() if value]
    instance["tags"] = [*kept, *more]


def test_teardown_ends_what_is_ours_and_names_what_is_not(site: Site) -> None:
    site(machines("rent"))
    ours, other = site.cloud.account.instances.values()
    # Of before state/ had an id, from a container of another name: this state/ knows it.
    tag(ours, owner="ann@container-1", state=None)
    tag(other, owner="bob@elsewhere", state="of-another")
    told = site(machines("end", state="absent"))["end"]
    assert told["failed"] and told["changed"]
    assert [one["id"] for one in told["ended"]] == [ours["id"]]
    assert told["msg"].startswith(
        "1 machines ended; the machines of cluster r1 were rented by bob@elsewhere"
    )
    assert f"{other['id']} (bob@elsewhere, $1.49/h)" in told["found"]
    assert site.paid_for == ["r1-1"]
    again = site(machines("end", state="absent"))["end"]
    assert again["failed"] and again["ended"] == [] and site.paid_for == ["r1-1"]


def test_what_is_kept_here_makes_no_machine_of_others_ours(site: Site) -> None:
    """It is written down what they cost, too, by each command that sees them."""
    site(machines("rent"))
    first, second = site.cloud.account.instances.values()
    (site.directory / "state/r1/lambda-ledger.json").unlink()
    for one in (first, second):
        tag(one, owner="bob@elsewhere", state=None)
    for _ in range(2):
        told = site(machines("end", state="absent"))["end"]
        assert told["failed"] and told["ended"] == []
    assert site.paid_for == ["r1-0", "r1-1"]


def test_an_owner_that_is_set_holds_from_any_container(site: Site) -> None:
    site(machines("rent"), lambda_owner="team-a")
    # Another container, and nothing kept.
    (site.directory / "state/r1/lambda-state-id").unlink()
    refused = site(machines("end", state="absent"))["end"]
    assert "were rented by team-a" in refused["msg"] and "set lambda_owner" in refused["fix"]
    assert not site(machines("end", state="absent"), lambda_owner="team-a")["end"].get("failed")
    assert site.paid_for == []


def test_a_fresh_clone_ends_no_machine_that_shows_no_key(site: Site) -> None:
    site(machines("rent"))
    shutil.rmtree(site.directory / "state")
    # The network is slow, or one of them busy: the other one shows its key.
    keyscan = site.directory / "bin/ssh-keyscan"
    keyscan.write_text(f"#!/bin/sh\ncase $* in *198.51.100.1) exit;; esac\n{KEYSCAN[10:]}")
    told = site(machines("again", ssh_seconds=0))["again"]
    assert told["failed"]
    assert "was not launched from this state/, and it may serve: it is not ended" in told["msg"]
    assert site.paid_for == ["r1-0", "r1-1"]
    assert site.cloud.writes.count("/api/v1/instance-operations/terminate") == 0


def test_a_full_disk_is_said_before_anything_is_rented(site: Site) -> None:
    (site.directory / "state").write_text("no directory")
    told = site(machines("rent"), max_hours=2)["rent"]
    assert told["failed"] and told["msg"].startswith("nothing more is rented: ")
    assert site.cloud.writes == []


def test_nothing_is_rented_where_nobody_would_watch(site: Site) -> None:
    lock = site.directory / "state/r1/lambda-meter.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as reader:
        # As whoever reads it for a backup may: the process finds it held, and ends.
        fcntl.flock(reader, fcntl.LOCK_SH)
        told = site(machines("rent"), max_hours=2)["rent"]
    assert told["failed"] and "no process watches max_hours and max_cost" in told["msg"]
    assert "does not live (status 0)" in told["found"] and "teardown.yml" in told["fix"]
    assert site.cloud.writes == []


HOLD = str(ROOT / "roles/provision/tasks/held.yml")


def test_renting_holds_the_cluster_of_a_head_that_is_there(play: Any, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    task = {"name": "hold", "ansible.builtin.include_tasks": HOLD}
    head = {
        "provision_machine": {"id": "a"},
        "provision_head_dir": str(cluster),
        "provision_become": False,
    }
    assert "failed" not in play([task], {"here": head}).tasks["Hold the cluster"]["here"]
    held = json.loads((cluster / "lock.json").read_text())
    other = {**held, "run": "another", "holder": {"user": "ann", "host": "elsewhere"}}
    (cluster / "lock.json").write_text(json.dumps(other))
    tasks = play([task], {"here": head}).tasks
    assert "skipped" not in tasks["Refuse machines that another run works on"]["here"]
    refused = tasks["Hold the cluster"]["here"]
    assert refused["failed"] and "ann" in str(refused)
