"""Refusals in Slurm's own words, each with a cause and something to do."""

from __future__ import annotations

import time

import pytest

from vllm_ansible.slurm.job import Job, jobs
from vllm_ansible.slurm.settings import Settings
from vllm_ansible.slurm.words import hopeless, is_lost, queue_line, refused, span, time_left

from .recorded import BEGIN_LATER, HELD, REFUSALS, WAITING

WANTED = Settings("r1", 4, "/scratch/ann", "gpu_h100", gpus_per_node=4, time="3-00:00:00")
CAUSES = {
    "-p nosuch": "there is no such partition",
    "--gres=gpu:h100:4": "no nodes of this partition have all that is asked for together",
    "--gres=gpux:4": "knows no such GPUs, or not in this form",
    "-p short -t 3-0": "more than the partition allows",
    "-C a100": "slurm_constraint",
    "-N 9": "the partition has fewer nodes",
    "-N 9 --ntasks-per-node=1": "so many nodes",
    "--reservation=x": "the reservation does not exist",
    "-t abc": "not in a form",
    "--nosuch": "does not know an argument",
    "--mem=9999G": "no node has so much memory",
    "-w lab9": "a node named in slurm_extra_args",
    "--test-only -p nosuch": "there is no such partition",
    "-A nobody": "the account is not yours",
    "--qos=hi": "quality of service",
}


@pytest.mark.parametrize("asked", REFUSALS)
def test_each_refusal_keeps_its_words_and_gets_a_cause(asked: str) -> None:
    problem = refused(REFUSALS[asked], f"sbatch {asked}", WANTED)
    own = REFUSALS[asked].splitlines()[-1].split(": ")[-1]
    assert own in problem.message
    assert CAUSES[asked] in problem.found
    assert problem.expected == "4 nodes with 4 GPUs each of partition gpu_h100 for 3-00:00:00"
    assert problem.fix and problem.where == f"sbatch {asked}"
    assert not is_lost(REFUSALS[asked])


def test_a_refusal_that_nobody_knows_is_told_as_it_is() -> None:
    problem = refused("sbatch: error: only on Sundays\n", "sbatch", WANTED)
    assert problem.message == "Slurm refuses the job: only on Sundays"
    assert problem.found == "only on Sundays"


def test_an_answer_that_was_lost_is_no_refusal() -> None:
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    assert is_lost(said)
    assert is_lost("sbatch: error: Unable to contact slurm controller (connect failure)")


def test_a_job_that_will_never_start_is_named_and_one_that_may_is_not() -> None:
    problem = hopeless(jobs(HELD)[0], WANTED)
    assert problem is not None
    assert "JobHeldUser" in problem.message
    assert "scontrol release" in problem.fix
    assert hopeless(jobs(WAITING)[0], WANTED) is None
    assert hopeless(jobs(BEGIN_LATER)[0], WANTED) is None


@pytest.mark.parametrize(
    ("reason", "never"),
    [
        ("QOSMaxWallDurationPerJobLimit", True),
        ("AssocMaxGRESPerJob", True),
        ("launch_failed_requeued_held", True),
        ("launch failed requeued held", True),
        ("job requeued in held state", True),
        ("JobHoldMaxRequeue", True),
        ("AssocGrpCpuLimit", False),
        ("QOSMaxJobsPerUserLimit", False),
        ("ReqNodeNotAvail, UnavailableNodes:gpu07", False),
    ],
)
def test_a_limit_of_one_job_never_passes_and_one_of_all_jobs_does(reason: str, never: bool) -> None:
    assert (hopeless(Job("1", "PENDING", reason), WANTED) is not None) == never


def test_a_job_whose_reservation_was_deleted_is_held_whatever_the_reason_says() -> None:
    problem = hopeless(Job("1", "RESV_DEL_HOLD", "Reservation week was deleted"), WANTED)
    assert problem is not None
    assert "the reservation is gone" in problem.found


def test_the_queue_line_has_reason_place_and_expected_start() -> None:
    assert queue_line(jobs(WAITING)[0], 3, 0) == "job 14 waits: Resources, number 3 in gpu"
    later = jobs(BEGIN_LATER)[0]
    line = queue_line(later, None, later.starts_at - 5400)
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(later.starts_at))
    assert line == f"job 9 waits: BeginTime, expected to start in 90 min, {at}"


def test_the_end_of_a_job_is_known_and_told() -> None:
    at = 1795373996
    told = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    assert time_left(Job("1", "RUNNING", ends_at=at), at - 420) == f"until {told}, 7 min from now"
    assert time_left(Job("1", "RUNNING"), at) == ""
    assert [span(30), span(3 * 3600), span(3 * 86400 + 7200)] == ["0 min", "3 h 0 min", "3 d 2 h"]
