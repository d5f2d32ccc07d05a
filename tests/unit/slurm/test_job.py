"""squeue's lines as jobs, and which of several is the cluster's."""

from __future__ import annotations

from vllm_ansible.slurm.job import Job, jobs, last, own

from .recorded import CANCELLED, COMPLETING, HELD, RUNNING, WAITING


def test_a_running_job_has_nodes_times_and_what_it_was_asked_for_with() -> None:
    (job,) = jobs(RUNNING)
    assert job.runs and job.lives
    assert (job.nodes, job.node_list, job.partition) == (2, "lab[2-3]", "gpu")
    assert job.ends_at - job.starts_at == 3 * 3600
    assert job.digest == "8d44b730e314"


def test_a_job_whose_comment_is_the_sites_own_has_no_digest() -> None:
    assert jobs(COMPLETING)[0].digest == ""
    assert Job("1", "PENDING", comment="project x 12").digest == ""


def test_a_job_that_runs_comes_before_one_that_waits_and_the_older_before_the_younger() -> None:
    found = jobs(HELD + WAITING + RUNNING + CANCELLED)
    job, surplus = own(found)
    assert job is not None and job.id == "12"
    assert [one.id for one in surplus] == ["14", "15"]


def test_one_that_is_completing_still_counts_and_one_that_ended_does_not() -> None:
    assert own(jobs(COMPLETING))[0] is not None
    assert own(jobs(CANCELLED)) == (None, [])
    ended = last(jobs(CANCELLED))
    assert ended is not None and ended.state == "CANCELLED"


def test_what_squeue_says_beside_is_no_job() -> None:
    assert jobs("slurm_load_jobs error: Invalid job id specified\n\n") == []


def test_a_job_that_is_held_for_want_of_its_reservation_waits() -> None:
    assert Job("1", "RESV_DEL_HOLD").lives
