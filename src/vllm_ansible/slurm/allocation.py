"""Go from the job that a cluster has, or has not, to one that holds its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.slurm.commands import Lost, Silent
from vllm_ansible.slurm.job import ENDING, WAITING, Job, last, own
from vllm_ansible.slurm.kept import Notes
from vllm_ansible.slurm.outcome import Outcome
from vllm_ansible.slurm.settings import Settings
from vllm_ansible.slurm.words import hopeless, queue_line

# A job that slurmctld has taken is listed at once; its answer may be lost for longer.
SETTLE_SECONDS = 60.0
SILENT_SECONDS = 600.0
# A login shell, the site's own lines and Python on a busy file system.
ANSWER_SECONDS, ANSWER_PAUSE_SECONDS = 600.0, 3.0
# Seldom enough for a busy slurmctld once a wait is long.
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 1.0, 30.0


class Queue(Protocol):
    """What Slurm offers; see commands.Slurm."""

    def jobs(self) -> list[Job]:
        """Return the cluster's jobs; raise Silent."""

    def position(self, job: Job) -> int | None:
        """Return a job's place in the queue."""

    def node_names(self, node_list: str) -> list[str]:
        """Return the names of a job's nodes."""

    def restarts(self, job: Job) -> int:
        """Return how often a job was started again."""

    def silent(self, job: Job, nodes: list[str]) -> dict[str, str]:
        """Return the nodes that do not answer, with what was said."""

    def submit(self) -> str:
        """Ask for the nodes; raise PlanError or Lost."""

    def cancel(self, job: str) -> None:
        """Take a job back."""


class Memory(Protocol):
    """Where notes are kept; see kept.Kept."""

    def read(self) -> Notes:
        """Return the notes."""

    def write(self, notes: Notes) -> None:
        """Keep notes."""


@dataclass
class Watch:
    """The surroundings of a wait: its clock, its line, and why it may have to stop."""

    report: Callable[[str], None]
    stopped: Callable[[], str] = lambda: ""
    log: Callable[[str], str] = lambda _: ""
    # By number and how often it was started again, whether a job takes no more requests.
    drains: Callable[[str, int], bool] = lambda *_: False
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    # How long the queue may take; 0 waits for as long as it does.
    queue_seconds: float = 0.0


def acquire(slurm: Queue, wanted: Settings, memory: Memory, watch: Watch) -> Outcome:
    """Return once a job of the cluster holds its nodes; raise PlanError where none will.

    What is there is looked at before anything is asked for, and an answer that was lost, by this
    run or by one that was killed, is waited for before it is asked again.
    """
    done, began, answered = Outcome(), watch.now(), watch.now()
    while not done.job:
        try:
            pause = _step(slurm, wanted, memory, watch, done, began)
            answered = watch.now()
        except Silent as silence:
            if watch.now() - answered > SILENT_SECONDS:
                raise PlanError(_silent(str(silence))) from silence
            watch.report(f"Slurm does not answer: {silence}")
            pause = LONGEST_LOOK_SECONDS
        if why := watch.stopped():
            raise PlanError(Problem(f"the wait for Slurm was ended: {why}", fix="run it again"))
        watch.sleep(pause)
    return done


def _step(
    slurm: Queue, wanted: Settings, memory: Memory, watch: Watch, done: Outcome, began: float
) -> float:
    """Look once and do what follows; return for how long to wait then."""
    listed = slurm.jobs()
    job, surplus = own(listed)
    for one in surplus:
        if one.state in WAITING:
            _cancel(slurm, one, "it was asked for twice", watch, done)
        elif one.runs and (note := f"job {one.id} runs too, unused; scancel it") not in done.notes:
            done.notes.append(note)
    waited = watch.now() - began
    pause = min(max(waited / 20, FIRST_LOOK_SECONDS), LONGEST_LOOK_SECONDS)
    if job is None:
        return _ask(slurm, listed, memory, watch, done) or pause
    if job.state in WAITING:
        if job.digest not in ("", wanted.digest):
            _cancel(slurm, job, "it asks for something else than the inventory now", watch, done)
            return FIRST_LOOK_SECONDS
        _note(memory, job)
        if problem := hopeless(job, wanted):
            raise PlanError(problem)
        line = queue_line(job, slurm.position(job), watch.now())
        if watch.queue_seconds and waited > watch.queue_seconds:
            raise PlanError(_too_long(line, watch.queue_seconds))
        watch.report(line)
        return pause
    if not job.runs:
        watch.report(f"job {job.id} is {job.state.lower()}")
        return FIRST_LOOK_SECONDS if job.state in ENDING else pause
    return _hold(slurm, job, wanted, memory, watch, done, pause)


def _ask(slurm: Queue, listed: list[Job], memory: Memory, watch: Watch, done: Outcome) -> float:
    """Ask for the nodes, unless that was just done; return a pause, 0 for the usual one."""
    known, ended = memory.read(), last(listed)
    if done.submitted:
        raise PlanError(_ended_at_once(done.submitted[-1], ended, watch))
    left = known.asked_at + SETTLE_SECONDS - watch.now()
    if known.asked_at and 0 < left <= SETTLE_SECONDS:
        watch.report("an earlier request's answer was lost; waiting whether its job appears")
        return FIRST_LOOK_SECONDS
    if known.job:
        how = f": {ended.state.lower()}" if ended and ended.id == known.job else ""
        done.notes.append(f"job {known.job} has ended{how}")
    memory.write(Notes(asked_at=watch.now()))
    try:
        number = slurm.submit()
    except Lost as lost:
        done.asked = True
        watch.report(f"the answer to sbatch was lost: {lost}")
        return FIRST_LOOK_SECONDS
    except PlanError:
        memory.write(Notes())
        raise
    done.submitted.append(number)
    memory.write(Notes(job=number))
    return FIRST_LOOK_SECONDS


def _hold(
    slurm: Queue,
    job: Job,
    wanted: Settings,
    memory: Memory,
    watch: Watch,
    done: Outcome,
    pause: float,
) -> float:
    """Take over a job that runs, once every one of its nodes answers; else return a pause."""
    if job.nodes != wanted.nodes:
        raise PlanError(_other_shape(job, wanted))
    known = memory.read()
    nodes, restarts = slurm.node_names(job.node_list), slurm.restarts(job)
    # A job of an earlier run that ends now is asked for again, as one that had ended before.
    if known.job != job.id:
        memory.write(replace(known, job=job.id, restarts=restarts, nodes=nodes, asked_at=0.0))
        known = memory.read()
    if watch.drains(job.id, restarts):
        # What would be started now would end with it.
        watch.report(f"job {job.id} drains, for its time is nearly over; waiting for its end")
        return pause
    if silent := slurm.silent(job, nodes):
        if watch.now() - job.starts_at > ANSWER_SECONDS:
            raise PlanError(_nodes_silent(job, silent, watch))
        watch.report(f"job {job.id} runs; waiting for an answer of {', '.join(silent)}")
        return ANSWER_PAUSE_SECONDS
    if known.job == job.id and restarts > known.restarts:
        moved = f", now on {job.node_list}" if nodes != known.nodes else ""
        done.notes.append(f"job {job.id} was put back into the queue and started again{moved}")
    if job.digest not in ("", wanted.digest):
        done.notes.append("what the inventory asks for has changed; it counts for the next job")
    memory.write(Notes(job.id, restarts, nodes))
    done.nodes, done.restarts, done.job = nodes, restarts, job
    return 0.0


def _note(memory: Memory, job: Job) -> None:
    """Remember a job that waits, with what was known of it before."""
    known = memory.read()
    same = known if known.job == job.id else Notes(job=job.id)
    memory.write(replace(same, asked_at=0.0))


def _cancel(slurm: Queue, job: Job, why: str, watch: Watch, done: Outcome) -> None:
    watch.report(f"taking job {job.id} back: {why}")
    slurm.cancel(job.id)
    done.cancelled.append(job.id)


def _ended_at_once(number: str, ended: Job | None, watch: Watch) -> Problem:
    how = ended.state.lower() if ended and ended.id == number else "no longer listed"
    words = watch.log(number)
    return Problem(
        f"job {number} has ended before its nodes could be used: {how}",
        expected="a job that holds its nodes",
        found=words or "nothing in its log",
        where=f"job {number}",
        fix="see that the lines of site_setup succeed on a node and that slurm_python is there",
    )


def _nodes_silent(job: Job, silent: dict[str, str], watch: Watch) -> Problem:
    name, words = next(iter(silent.items()))
    return Problem(
        f"{len(silent)} of {job.nodes} nodes of job {job.id} do not answer: {', '.join(silent)}",
        expected="an answer over a step of srun from every node that is held",
        found="; ".join(filter(None, [f"{name}: {words}", watch.log(job.id)])),
        where=f"job {job.id}",
        fix="after playbooks/teardown.yml, leave these nodes out with --exclude in "
        "slurm_extra_args; where none answers, see that site_setup ends and slurm_python is there",
    )


def _other_shape(job: Job, wanted: Settings) -> Problem:
    return Problem(
        f"job {job.id} holds {job.nodes} nodes, {wanted.nodes} are wanted",
        expected=f"{wanted.nodes} nodes",
        found=f"{job.nodes}: {job.node_list}",
        where="slurm_nodes",
        fix="set it back, or run playbooks/teardown.yml, then site.yml",
    )


def _silent(words: str) -> Problem:
    return Problem(
        f"Slurm has not answered for {SILENT_SECONDS / 60:.0f} minutes",
        expected="an answer of slurmctld",
        found=words,
        where="this machine",
        fix="`scontrol ping` asks it; run the same command again once it answers",
    )


def _too_long(line: str, seconds: float) -> Problem:
    return Problem(
        f"the job has waited for {seconds / 3600:.1f} hours, which is provision_queue_hours",
        expected="a start within that time",
        found=line,
        where="provision_queue_hours",
        fix="run the same command again, which waits on for the same job, or give it back with "
        "playbooks/teardown.yml",
    )
