"""Renting at AWS, ending and being killed in between: real plays against the emulated EC2."""

from __future__ import annotations

import os
import signal
import time

from tests.emulators.ec2_parts import SECRET

from .aws_rental import AwsSite, AwsTasks
from .aws_world import P5, A
from .rental import ROOT, machines


def test_machines_are_rented_once_watched_and_ended_and_no_secret_is_shown(
    aws_tasks: AwsTasks,
) -> None:
    end = {"state": "absent"}
    tasks = (machines("rent"), machines("again"), machines("end", **end), machines("gone", **end))
    played = aws_tasks(*tasks, flags=("-vvv",), max_hours="2")
    rented = played["rent"]
    assert rented["changed"] and rented["launched"] == [0, 1]
    summary = rented["evidence"]["summary"]
    assert summary.startswith(f"2 x {P5} in {A}, $100.00/h; security group vllm-ansible-r1 in ")
    assert f"placement group vllm-ansible-r1-{A}" in summary
    assert "ended in 2.0 h at the latest" in summary
    assert "if no controller ends them, they end themselves 5 minutes after the limits" in summary
    since = min(
        int(each["Value"])
        for one in aws_tasks.cloud.account.machines.values()
        for each in one["Tags"]
        if each["Key"] == "vllm-ansible:since"
    )
    ids = [one["id"] for one in rented["machines"]]
    assert rented["own_ends"] == dict.fromkeys(ids, since + 7200 + 300)
    assert [one["address"] for one in rented["machines"]] == ["10.0.0.1", "10.0.0.2"]
    assert not played["again"]["changed"]
    assert played["end"]["evidence"]["summary"].startswith("2 machines ended, none is listed")
    assert not played["gone"]["changed"]
    account = aws_tasks.cloud.account
    assert account.paid_for == [] and account.volumes == account.network.groups == {}
    assert aws_tasks.cloud.misfits == []
    assert SECRET not in str(played.tasks) + played.printed
    kept = [one for one in (aws_tasks.directory / "state").rglob("*") if one.is_file()]
    assert kept and not [one for one in kept if SECRET.encode() in one.read_bytes()]
    assert not [one for _, one in aws_tasks.cloud.requests if SECRET in str(one)]
    # Whoever watches reads that it ends.
    until = time.monotonic() + 60
    while (aws_tasks.directory / "state/r1/aws-meter.json").exists():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_check_sends_lists_only(aws_tasks: AwsTasks) -> None:
    orphans = {"name": "orphans", "rented_orphans": {}}
    aws_tasks.cloud.account.offers.regions.append("eu-south-1")
    told = aws_tasks(machines("rent"), orphans, flags=("--check",))
    assert told["orphans"]["lines"] == [
        "not looked at: eu-south-1: AWS refused: You are not subscribed to this region.",
        "no other instance where it was looked for",
    ]
    assert told["rent"]["evidence"]["summary"] == f"2 of 2 would be rented: {P5} in {A}, $100.00/h"
    aws_tasks(machines("rent"))
    aws_tasks.cloud.log.clear()
    told = aws_tasks(machines("rent"), machines("end", state="absent"), flags=("--check",))
    assert not told["rent"]["changed"] and told["end"]["msg"].endswith("would be ended")
    assert aws_tasks.cloud.log and aws_tasks.cloud.writes == []


def test_a_run_that_is_killed_while_it_launches_is_taken_up_by_the_next(
    aws_tasks: AwsTasks,
) -> None:
    cloud = aws_tasks.cloud
    # Carried out, and answered to nobody for as long as the first run lives.
    cloud.account.faults.lost["RunInstances"] = 100
    with aws_tasks.start(machines("rent")) as killed:
        until = time.monotonic() + 120
        while "RunInstances" not in cloud.writes:
            assert time.monotonic() < until and killed.poll() is None
            time.sleep(0.05)
        os.killpg(killed.pid, signal.SIGKILL)
    cloud.account.faults.lost.clear()
    told = aws_tasks(machines("rent"))["rent"]
    assert [one["slot"] for one in told["machines"]] == [0, 1]
    tokens = {one["ClientToken"] for name, one in cloud.requests if name == "RunInstances"}
    assert len(tokens) == 1 and len(cloud.account.machines) == 2


def test_a_site_says_what_it_would_rent_and_writes_nothing(aws_site: AwsSite) -> None:
    done = aws_site.run("ansible-playbook", "site.yml", "--check", "--tags", "provision", "-vvv")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"2 of 2 would be rented: {P5} in {A}, $100.00/h" in " ".join(done.stdout.split())
    assert SECRET not in done.stdout + done.stderr
    written = [one for one in aws_site.directory.rglob("*") if one.is_file()]
    own = [one for one in written if not one.resolve().is_relative_to(ROOT)]
    assert own and not [one for one in own if SECRET.encode() in one.read_bytes()]
    assert aws_site.cloud.log and aws_site.cloud.writes == []
