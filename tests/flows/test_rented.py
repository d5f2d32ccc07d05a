"""Machines are rented, accepted, replaced and given back: Lambda emulated, its machines real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.standin import ENGINES

from .clone import MINUTE
from .rented import KEY, KIND, REGION, Rented, rented

pytestmark = pytest.mark.lab
RENT = ("--tags", "provision")


@pytest.fixture(scope="module", params=ENGINES)
def site(
    request: pytest.FixtureRequest, real_hosts: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rented]:
    with rented(tmp_path_factory.mktemp("rented"), hosts=4, engine=request.param) as made:
        yield made


def with_the_key(site: Rented) -> list[Path]:
    """Return the files that the key is in: records of runs, what is kept of machines."""
    written = [path for path in site.clone.directory.rglob("*") if path.is_file()]
    return [path for path in written if KEY.encode() in path.read_bytes()]


def test_a_check_says_what_would_be_rented_and_for_how_much(site: Rented) -> None:
    site.cloud.log.clear()
    ran = site.run("--check", *RENT)
    assert ran.status == 0, ran.output
    assert f"3 of 3 would be rented: {KIND} in {REGION}, $4.47/h" in ran.output
    assert site.cloud.writes == []
    assert site.paid_for == []


def test_a_price_above_the_limit_stops_before_anything_is_rented(site: Rented) -> None:
    limited = {**site.variables, "max_usd_per_hour": 2}
    before, site.variables = site.variables, limited
    try:
        failure = site.run(*RENT).failure
    finally:
        site.variables = before
    assert failure["stage"] == "provision"
    assert "3 machines would cost $4.47 an hour, $2.00 are allowed" in failure["msg"]
    assert site.paid_for == [] and site.cloud.writes == []


def test_a_controller_killed_while_it_rents_leaks_nothing_no_key_and_launches_nothing_twice(
    site: Rented,
) -> None:
    """On a bad day: no room at first, requests that fail or come too early, and a lost reply."""
    cloud = site.cloud
    cloud.log.clear()
    cloud.account.faults.full = cloud.account.faults.unhealthy = cloud.lose_launch_replies = 1
    cloud.fail_requests, cloud.too_early = 2, 1
    running = site.start(*RENT)
    running.wait_for(lambda event: event["event"] == "progress", "a launch", 10 * MINUTE)
    running.kill()
    # All that is said of SSH is said where machines are looked at first.
    ran = site.run("-vvv", *RENT)
    assert ran.status == 0, ran.output
    assert {200, 400, 429, 500} <= {status for _, _, status in cloud.log}
    assert site.paid_for == ["rented-0", "rented-1", "rented-2"]
    launches = [one for one in site.cloud.log if one[1].endswith("/launch") and one[2] == 200]
    # One for each slot, and one in place of the unhealthy machine.
    assert len(launches) == 4
    # The key is in no output and no record.
    assert "EXEC" in ran.output
    assert KEY not in ran.output
    assert with_the_key(site) == []


def test_a_second_run_asks_for_lists_only_and_changes_nothing(site: Rented) -> None:
    site.cloud.log.clear()
    ran = site.run(*RENT)
    assert ran.status == 0, ran.output
    assert ran.changed == []
    assert site.cloud.writes == []


def test_a_failure_says_what_the_machines_cost_and_both_ways_out(site: Rented) -> None:
    before, site.variables = site.variables, {**site.variables, "lambda_regions": ["us-est-3"]}
    try:
        ran = site.run(*RENT)
    finally:
        site.variables = before
    told = " ".join(ran.output.split())
    assert "Lambda knows no region us-est-3" in ran.failure["msg"]
    assert "costs $4.47/h for 3 rented machines, $" in told
    assert "or end ansible-playbook playbooks/teardown.yml -i inventories/rented" in told


def test_a_spare_takes_over_and_machines_that_do_not_answer_or_let_nobody_in_are_not_kept(
    site: Rented,
) -> None:
    listed = site.cloud.account.list_instances()
    (ended,) = [one["id"] for one in listed if one["name"] == "rented-1"]
    (spare,) = [one["id"] for one in listed if one["name"] == "rented-2"]
    (closed,) = {one.name for one in site.lab.record.hosts} - {*site.machines.rented.values()}
    opened = site.machines.rented[ended]
    # For good: nothing else gets in there, and nothing later rents it.
    site.lab.run(closed, ["rm", "/root/.ssh/authorized_keys"])
    site.cloud.account.terminate([ended])
    site.machines.silent, site.machines.first = 1, [closed, opened]
    ran = site.run("-e", "provision_ssh_seconds=20", *RENT)
    assert ran.status == 0, ran.output
    told = "; ".join(one["summary"] for one in ran.evidence("provision"))
    assert "slot 1 taken by the spare of slot 2" in told
    assert "slot 2 replaced: showed no SSH key within 20 s" in told
    assert "slot 2 replaced: no answer for 20 s" in told
    assert site.paid_for == ["rented-0", "rented-1", "rented-2"]
    assert site.cloud.account.instance(spare)["name"] == "rented-1"
    assert len(site.machines.rented) == 3
    assert closed not in site.machines.rented.values()


def test_a_machine_is_given_back_by_the_name_of_its_host(site: Rented) -> None:
    replace = "playbooks/replace.yml"
    before = {one["name"]: one["id"] for one in site.cloud.account.list_instances()}
    site.cloud.log.clear()
    ran = site.run("--check", "-e", "replace_hosts=rented-1", playbook=replace)
    assert ran.status == 0, ran.output
    assert "slot 1 would be replaced: given back by name" in ran.output
    assert site.cloud.writes == []
    refused = site.run("-e", "replace_hosts=rented-7", playbook=replace)
    assert "no host is called rented-7" in refused.failure["msg"]
    ran = site.run("-e", "replace_hosts=rented-1", playbook=replace)
    assert ran.status == 0, ran.output
    told = "; ".join(one["summary"] for one in ran.evidence("provision"))
    assert "slot 1 replaced: given back by name" in told
    assert "slot 1 taken by the spare of slot 2" in told
    assert site.paid_for == ["rented-0", "rented-1", "rented-2"]
    after = {one["name"]: one["id"] for one in site.cloud.account.list_instances()}
    assert (after["rented-0"], after["rented-1"]) == (before["rented-0"], before["rented-2"])
    assert after["rented-2"] not in before.values()


def test_what_is_rented_serves_a_true_answer(site: Rented) -> None:
    # Everything from nothing, on two hosts at once, beside other tests.
    ran = site.start().result()
    assert ran.status == 0, ran.output
    (served,) = ran.evidence("serve")
    (engine,) = served["values"]["engines"]
    assert engine["answer"].startswith("The capital of France is Paris")
    (planned,) = ran.evidence("plan")
    assert "TP1 PP2 on rented-0, rented-1" in planned["summary"]
    # How to ask it from a laptop, what it costs while it stands there, and how that ends.
    told = " ".join(ran.output.split())
    assert "ssh -N " in told and "-L 20001:127.0.0.1:20001" in told
    assert "costs $4.47/h for 3 rented machines, $" in told
    assert "end ansible-playbook playbooks/teardown.yml -i inventories/rented" in told


def test_serve_alone_finds_the_hosts_that_were_rented_and_leaves_them_serving(
    site: Rented,
) -> None:
    ran = site.run("--tags", "serve")
    assert ran.status == 0, ran.output
    assert ran.changed == []
    assert len(ran.evidence("serve")) == 1


def test_teardown_gives_everything_back_and_says_what_it_has_cost(site: Rented) -> None:
    ran = site.run("--check", playbook="playbooks/teardown.yml")
    assert ran.status == 0 and site.paid_for, ran.output
    ran = site.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    told = " ".join(ran.output.split())
    assert "3 machines ended, none is listed any more; the cluster has cost about $" in told
    assert site.paid_for == []
    assert site.cloud.account.rulesets == {}
    kept: list[Any] = site.cloud.account.list_file_systems()
    assert [one["name"] for one in kept] == ["shared"]
    again = site.run(playbook="playbooks/teardown.yml")
    assert again.status == 0 and again.changed == [], again.output
    assert with_the_key(site) == []
