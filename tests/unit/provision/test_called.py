"""What rented machines cost and when they end, from the emulated EC2 to Alertmanager."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from tests.flows.clone import wait_until
from tests.unit.observe.conftest import PROGRAMS, ObservedSite
from vllm_ansible.provision.aws_cluster import AwsCluster
from vllm_ansible.provision.slots import hosts

from .aws_rental import USD, AwsTasks
from .aws_world import P5, A, AwsWorld
from .rental import machines

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not all(PROGRAMS.values()), reason="no prometheus, alertmanager or node exporter here"
    ),
]
# AWS ends machines of a block half an hour before it is over; the alert comes two hours before.
BLOCK_SECONDS, LEFT_SECONDS = 1800, 7200
# So long all is well; where it is more, less is left for what a busy machine takes to begin.
QUIET_SECONDS = 120
# Nine tenths of this are spent after 205 s by two machines, and all of it after 228 s.
MOST_USD = 2 * USD * 228 / 3600


def test_the_end_of_a_block_and_of_money_call_before_machines_are_ended(
    aws_tasks: AwsTasks, aws: AwsWorld, tmp_path: Path
) -> None:
    """One story: both limits come nearer in real time, and nothing else changes."""
    began = time.time()
    end = began + BLOCK_SECONDS + LEFT_SECONDS + QUIET_SECONDS
    block = aws.cloud.account.reserve(P5, A, 2, block_end=end)
    aws.settings |= {"market": "capacity_block", "reservation": block}
    aws_tasks.variables |= {"aws_market": "capacity_block", "aws_capacity_reservation": block}
    limit = f"{MOST_USD:.2f}"
    rented = aws_tasks(machines("rent"), max_cost=limit)["rent"]
    assert rented.get("launched") == [0, 1], rented["msg"]
    state = tmp_path / "state/r1"
    assert (state / "aws-ledger.json").exists()
    cluster = AwsCluster(aws.wanted(), tmp_path / "state")
    (first, _) = hosts(aws.wanted(), cluster.machines())

    place = tmp_path / "observed"
    place.mkdir()
    # Sockets have short paths only.
    watched = ObservedSite(place, Path(tempfile.mkdtemp(prefix="oe")))
    try:
        status, said, _ = watched.observe(
            site_state_dir=str(state),
            provision_machine=first.variables["provision_machine"],
            max_cost=limit,
        )
        assert status == 0, said
        assert time.time() < began + QUIET_SECONDS - 10, "this machine was too slow to see quiet"
        assert not {"MachineEnds", "SpendNearLimit"} & set(watched.arrived())
        for name, due in (("MachineEnds", QUIET_SECONDS), ("SpendNearLimit", 0.9 * 228)):
            wait_until(lambda name=name: name in watched.arrived(), 300, name)
            after = time.time() - began
            print(f"{name} after {after:.0f} s: {watched.arrived()[name]['summary']}", flush=True)
            # Not before its time.
            assert after >= due - 2
        words = watched.arrived()
        assert "of here in 1h 5" in words["MachineEnds"]["summary"]
        assert "the machines of standin have cost $5.7" in words["SpendNearLimit"]["summary"]
        # The limit itself, at which the meter ends them.
        wait_until(lambda: aws.cloud.account.paid_for == [], 300, "the end of the machines")
        assert "SpendNearLimit" in watched.arrived()
    finally:
        watched.end()
        aws_tasks(machines("end", state="absent"))
