"""What a run would make of an allocation, and whether all of its nodes can be reached."""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.slurm.job import Job, comment
from vllm_ansible.slurm.look import foreseen, unanswered
from vllm_ansible.slurm.settings import Settings

WANTED = Settings("r1", 2, "/scratch/ann", "gpu")
RUNS = Job("1", "RUNNING", nodes=2, node_list="n[1-2]", comment=comment(WANTED.digest))
WAITS = replace(RUNS, state="PENDING", node_list="")


class Queue:
    """A queue with jobs on two nodes, of which some are silent."""

    def __init__(self, *jobs: Job, silent: tuple[str, ...] = ()) -> None:
        self._jobs, self._silent = list(jobs), silent

    def jobs(self) -> list[Job]:
        return self._jobs

    def node_names(self, node_list: str) -> list[str]:
        return ["n1", "n2"]

    def silent(self, job: Job, nodes: list[str]) -> dict[str, str]:
        return dict.fromkeys(self._silent, "no agent answers")

    def try_out(self) -> str:
        return "Job 13 to start at noon"


def test_a_job_that_is_wanted_is_left_as_it_is() -> None:
    assert foreseen(Queue(RUNS), WANTED) == (False, "job 1 is running")
    assert foreseen(Queue(WAITS), WANTED) == (False, "job 1 is pending")
    assert foreseen(Queue(replace(RUNS, comment=comment("other"))), WANTED)[0] is False


def test_a_job_that_is_missing_would_be_asked_for() -> None:
    assert foreseen(Queue(), WANTED) == (True, "would ask: Job 13 to start at noon")
    changed, words = foreseen(Queue(replace(RUNS, state="COMPLETING")), WANTED)
    assert changed
    assert words.startswith("job 1 is completing; would ask: ")


def test_a_job_that_waits_for_something_else_would_be_taken_back() -> None:
    changed, words = foreseen(Queue(replace(WAITS, comment=comment("other"))), WANTED)
    assert changed
    assert "would cancel job 1; would ask: " in words


def test_one_of_two_that_wait_would_be_taken_back() -> None:
    told = foreseen(Queue(WAITS, replace(WAITS, id="2")), WANTED)
    assert told == (True, "job 1 is pending; would cancel job 2")


def test_nodes_that_cannot_be_reached_are_named() -> None:
    assert unanswered(Queue(), RUNS, WANTED) == ""
    assert unanswered(Queue(silent=("n2",)), RUNS, WANTED) == "no answer from n2"
    assert unanswered(Queue(), replace(RUNS, state="COMPLETING"), WANTED) == "job 1 is completing"


def test_hosts_that_have_no_node_yet_cannot_be_reached() -> None:
    assert unanswered(Queue(), RUNS, replace(WANTED, nodes=4)) == "it has 2 nodes, not 4"
