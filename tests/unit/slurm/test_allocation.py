"""From what the queue holds to a job that holds nodes: asked once, whatever gets lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.slurm.allocation import (
    SETTLE_SECONDS,
    SILENT_SECONDS,
    Watch,
    acquire,
)
from vllm_ansible.slurm.commands import Lost, Silent
from vllm_ansible.slurm.draining import drains, drains_at
from vllm_ansible.slurm.ending import give_back
from vllm_ansible.slurm.job import Job, comment
from vllm_ansible.slurm.kept import Kept, Notes
from vllm_ansible.slurm.outcome import Outcome, told, warnings
from vllm_ansible.slurm.settings import REQUEUE, Settings
from vllm_ansible.slurm.words import clock

WANTED = Settings("r1", 2, "/scratch/ann", "gpu")
MARK = comment(WANTED.digest)


def waiting(number: str = "1", reason: str = "Priority", mark: str = MARK) -> Job:
    return Job(number, "PENDING", reason, partition="gpu", nodes=2, comment=mark)


def running(number: str = "1", nodes: int = 2, mark: str = MARK) -> Job:
    return Job(
        number, "RUNNING", "None", 100, 7300, 90, nodes, "gpu", f"n[1-{nodes}]", comment=mark
    )


class Memory:
    def __init__(self, notes: Notes | None = None) -> None:
        self.notes = notes or Notes()

    def read(self) -> Notes:
        return self.notes

    def write(self, notes: Notes) -> None:
        self.notes = notes


class Queue:
    """A queue that changes when somebody looks: `steps` are what each look finds."""

    def __init__(self, *steps: list[Job] | Exception) -> None:
        self.steps = list(steps)
        self.submitted = 0
        self.cancelled: list[str] = []
        self.answer: Exception | None = None
        self.started_again = 0
        # By look, the nodes that do not answer yet.
        self.answers: list[list[str]] = []

    def jobs(self) -> list[Job]:
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return [job for job in step if job.id not in self.cancelled]

    def position(self, job: Job) -> int | None:
        return 4

    def node_names(self, node_list: str) -> list[str]:
        return ["n1", "n2"]

    def restarts(self, job: Job) -> int:
        return self.started_again

    def silent(self, job: Job, nodes: list[str]) -> dict[str, str]:
        return dict.fromkeys(self.answers.pop(0), "no agent answers") if self.answers else {}

    def submit(self) -> str:
        self.submitted += 1
        if self.answer:
            raise self.answer
        return "1"

    def cancel(self, job: str) -> None:
        self.cancelled.append(job)


class World:
    def __init__(self) -> None:
        self.time = 1000.0
        self.said: list[str] = []

    def watch(self, **more: object) -> Watch:
        def sleep(seconds: float) -> None:
            self.time += seconds

        return replace(
            Watch(self.said.append, now=lambda: self.time, sleep=sleep),
            **more,  # type: ignore[arg-type]
        )


def ask(queue: Queue, memory: Memory | None = None, world: World | None = None, **more: object):  # type: ignore[no-untyped-def]
    world = world or World()
    return acquire(queue, WANTED, memory or Memory(), world.watch(**more))


def test_a_job_is_asked_for_once_and_waited_for() -> None:
    world, queue = World(), Queue([], [waiting()], [waiting(reason="Resources")], [running()])
    done = ask(queue, world=world)
    assert (done.submitted, done.nodes, queue.submitted) == (["1"], ["n1", "n2"], 1)
    assert "job 1 waits: Priority, number 4 in gpu" in world.said
    assert done.changed


def test_a_job_that_runs_is_taken_as_it_is() -> None:
    queue = Queue([running()])
    done = ask(queue)
    assert (queue.submitted, done.changed) == (0, False)
    assert told(done, WANTED, 100).startswith("job 1 holds n[1-2] of gpu until ")


def test_an_answer_that_was_lost_makes_no_second_job() -> None:
    queue = Queue([], [], [waiting()], [running()])
    queue.answer = Lost("Socket timed out")
    done = ask(queue)
    assert queue.submitted == 1
    assert done.changed


def test_a_request_that_never_arrived_is_made_again_after_a_while() -> None:
    world, queue = World(), Queue([])
    queue.answer = Lost("Socket timed out")

    def until_second() -> str:
        return "enough" if queue.submitted == 2 else ""

    with pytest.raises(PlanError, match="enough"):
        ask(queue, world=world, stopped=until_second)
    assert world.time - 1000 >= SETTLE_SECONDS


def test_a_controller_that_was_killed_while_it_asked_leaves_one_job() -> None:
    queue, memory = Queue([], [waiting()], [running()]), Memory(Notes(asked_at=999))
    ask(queue, memory)
    assert queue.submitted == 0
    assert memory.notes == Notes("1", 0, ["n1", "n2"])


def test_two_jobs_become_one() -> None:
    queue = Queue([running(), waiting("2")])
    done = ask(queue)
    assert (queue.cancelled, done.job) == (["2"], running())


def test_a_waiting_job_for_something_else_is_asked_for_anew() -> None:
    queue = Queue([waiting(mark="vllm-ansible other")], [], [waiting("1")], [running()])
    queue.cancel = lambda job: None  # type: ignore[method-assign]
    done = ask(queue)
    assert done.submitted == ["1"]


def test_a_running_job_for_something_else_stays_and_that_is_told() -> None:
    done = ask(Queue([running(mark="vllm-ansible other")]))
    assert "it counts for the next job" in told(done, WANTED, 0)


def test_a_running_job_of_another_size_is_refused() -> None:
    with pytest.raises(PlanError, match="holds 4 nodes, 2 are wanted"):
        ask(Queue([running(nodes=4)]))


def test_a_job_that_started_again_is_told_of() -> None:
    queue, memory = Queue([running()]), Memory(Notes("1", 0, ["n7", "n8"]))
    queue.started_again = 1
    done = ask(queue, memory)
    assert "put back into the queue and started again, now on n[1-2]" in told(done, WANTED, 0)


def test_every_node_answers_before_a_job_is_taken() -> None:
    just = replace(running(), starts_at=1000)
    world, queue = World(), Queue([], [just])
    queue.answers = [["n1", "n2"], ["n2"]]
    done = ask(queue, world=world)
    assert done.submitted == ["1"]
    assert world.said[-1] == "job 1 runs; waiting for an answer of n2"


def test_a_job_that_ends_while_its_nodes_are_waited_for_is_told_with_its_log() -> None:
    just = replace(running(), starts_at=1000)
    queue = Queue([], [just], [replace(just, state="FAILED")])
    queue.answers = [["n1", "n2"]] * 9
    with pytest.raises(PlanError, match="has ended before its nodes could be used: failed") as told:
        ask(queue, log=lambda _: "no such module")
    assert told.value.problems[0].found == "no such module"


def test_a_node_that_never_answers_is_named() -> None:
    queue = Queue([running()])
    queue.answers = [["n2"]] * 999
    with pytest.raises(PlanError, match="1 of 2 nodes of job 1 do not answer: n2") as told:
        ask(queue)
    assert "n2: no agent answers" in told.value.problems[0].found


def test_one_that_is_requeued_is_waited_for() -> None:
    completing = replace(running(), state="COMPLETING")
    queue = Queue([completing], [waiting(reason="BeginTime")], [running()])
    assert ask(queue).job == running()
    assert queue.submitted == 0


def test_the_end_of_the_last_job_is_told_with_the_next() -> None:
    ended = replace(running("0"), state="TIMEOUT")
    done = ask(Queue([ended], [running()]), Memory(Notes("0", 0, ["n1", "n2"])))
    assert "job 0 has ended: timeout" in told(done, WANTED, 0)


def test_a_job_that_ends_at_once_is_not_asked_for_again() -> None:
    queue = Queue([], [replace(running(), state="FAILED")])
    with pytest.raises(PlanError, match="failed") as refused:
        ask(queue, log=lambda job: f"no module in {job}")
    assert queue.submitted == 1
    assert refused.value.problems[0].found == "no module in 1"


def test_a_refusal_leaves_no_trace_of_a_request() -> None:
    queue, memory = Queue([]), Memory()
    queue.answer = PlanError(Problem("Slurm refuses the job"))
    with pytest.raises(PlanError, match="refuses"):
        ask(queue, memory)
    assert memory.notes == Notes()


def test_a_reason_that_nobody_can_wait_for_ends_the_wait() -> None:
    with pytest.raises(PlanError, match="PartitionTimeLimit"):
        ask(Queue([waiting(reason="PartitionTimeLimit")]))


def test_a_queue_may_be_given_up_and_the_job_stays() -> None:
    queue = Queue([waiting()])
    with pytest.raises(PlanError, match="provision_queue_hours"):
        ask(queue, queue_seconds=3600.0)
    assert queue.cancelled == []


@pytest.mark.parametrize("silent", [1, 3])
def test_a_slurmctld_that_is_away_for_a_moment_is_waited_for(silent: int) -> None:
    queue = Queue(*[Silent("no answer")] * silent, [running()])
    assert ask(queue).job == running()


def test_a_slurmctld_that_stays_away_is_given_up() -> None:
    world = World()
    with pytest.raises(PlanError, match="Slurm has not answered"):
        ask(Queue(Silent("no answer")), world=world)
    assert world.time - 1000 > SILENT_SECONDS


def test_an_end_that_is_near_is_a_warning() -> None:
    done = ask(Queue([running()]))
    (words,) = warnings(done, WANTED, 7300 - 600)
    assert f"and job 1 ends {clock(7300)}" in words
    assert "10 min from now" in words
    assert warnings(done, WANTED, 100) == []


def test_giving_back_takes_only_what_is_the_clusters_and_waits() -> None:
    ended: Callable[[], float] = iter(range(100)).__next__
    queue = Queue([running(), waiting("2")], [replace(running(), state="COMPLETING")], [])
    queue.cancel = queue.cancelled.append  # type: ignore[method-assign]
    steps = queue.steps
    queue.jobs = lambda: steps.pop(0)  # type: ignore[method-assign, assignment]
    done = give_back(queue, 60, lambda _: None, ended, lambda _: None)
    assert (done.cancelled, done.left) == (["1", "2"], [])


def test_a_job_that_is_put_back_while_it_is_given_back_is_taken_back_again() -> None:
    ended: Callable[[], float] = iter(range(100)).__next__
    queue = Queue([])
    steps = [[replace(running(), state="COMPLETING")], [waiting()], []]
    queue.jobs = lambda: steps.pop(0)  # type: ignore[method-assign, assignment]
    done = give_back(queue, 60, lambda _: None, ended, lambda _: None)
    assert queue.cancelled == ["1", "1"]
    assert (done.cancelled, done.left) == (["1"], [])


def test_a_second_job_that_runs_is_told_of_and_left_to_its_owner() -> None:
    recent = replace(running(), starts_at=990)
    queue = Queue([recent, running("2")])
    queue.answers = [["n1"]]
    done = ask(queue)
    assert done.job == recent
    assert done.notes == ["job 2 runs too, unused; scancel it"]
    assert queue.cancelled == []


def test_a_job_that_drains_is_not_taken_and_the_next_one_is_asked_for() -> None:
    queue = Queue([running()], [running()], [], [running("2")])
    drains = {("1", 0): True}
    world = World()
    done = ask(queue, world=world, drains=lambda job, restarts: drains.get((job, restarts), False))
    assert queue.submitted == 1
    assert (done.job and done.job.id) == "2"
    assert "job 1 drains, for its time is nearly over; waiting for its end" in world.said


def test_a_job_that_was_put_back_after_it_drained_is_taken_again() -> None:
    queue = Queue([running()])
    queue.started_again = 1
    done = ask(queue, Memory(Notes("1", 0, ["n1", "n2"])), drains=lambda _, restarts: restarts == 0)
    assert "put back into the queue and started again" in told(done, WANTED, 0)


def test_when_draining_begins_is_told_before_and_after() -> None:
    done = ask(Queue([running()]))
    assert f"it takes no more requests from {clock(7000)} on" in told(done, WANTED, 100)
    assert f"it has taken no more requests since {clock(7000)}" in told(done, WANTED, 7000)
    # An hour before that, not before the end.
    assert warnings(done, WANTED, 3399) == []
    (words,) = warnings(done, WANTED, 3400)
    assert words.startswith(f"it takes no more requests from {clock(7000)} on, and job 1 ends ")
    assert words.endswith("a run after its end asks for a new one")


def test_what_becomes_of_a_job_that_is_put_back_is_told() -> None:
    again = replace(WANTED, at_end=REQUEUE)
    mine = running(mark=comment(again.digest))
    (words,) = warnings(Outcome(mine), again, 7200)
    assert words.endswith("put back into the queue, and serves again after another run")


def test_nobody_knows_when_a_job_drains_that_was_asked_for_otherwise() -> None:
    assert drains_at(running(mark="vllm-ansible other"), WANTED) == 0
    assert drains_at(replace(running(), ends_at=0), WANTED) == 0
    assert drains_at(running(), replace(WANTED, drain_seconds=0)) == 0
    # A site's own words in the comment.
    assert drains_at(running(mark="project x"), WANTED) == 7000


def test_the_mark_of_a_drain_is_of_one_start(tmp_path: Path) -> None:
    wanted = Settings("r1", 2, str(tmp_path))
    assert not drains(wanted, "12", 1)
    (tmp_path / "r1/draining-12-1").mkdir(parents=True)
    assert drains(wanted, "12", 1)
    assert not drains(wanted, "12", 2)


def test_a_run_that_hangs_is_named_and_not_waited_for_for_ever(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    said: list[str] = []
    with kept.alone(said.append):
        with pytest.raises(PlanError) as refused, kept.alone(said.append, 0.5):
            pass
        (problem,) = refused.value.problems
    assert f"process {os.getpid()} asks Slurm" in problem.message
    assert f"kill -KILL {os.getpid()}" in problem.fix
    assert said  # it is waited for before
    with kept.alone(said.append, 0.0):
        pass
