"""What was done for an allocation, and what a person is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm_ansible.slurm.draining import drains_at
from vllm_ansible.slurm.job import Job
from vllm_ansible.slurm.settings import REQUEUE, Settings
from vllm_ansible.slurm.words import clock, time_left

# Less than this is left: time to save what should not be lost.
SOON_SECONDS = 3600.0


@dataclass
class Outcome:
    """What was done, and the job that holds the nodes."""

    job: Job | None = None
    nodes: list[str] = field(default_factory=list)
    restarts: int = 0
    submitted: list[str] = field(default_factory=list)
    # A request without an answer; whether it made a job is seen later.
    asked: bool = False
    cancelled: list[str] = field(default_factory=list)
    # What a person is told beside: a requeue, a wish that differs.
    notes: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Tell whether anything was asked for or taken back."""
        return bool(self.submitted or self.cancelled or self.asked)


def warnings(done: Outcome, wanted: Settings, now: float) -> list[str]:
    """Return what a person has to know before it happens: that the time is nearly over."""
    job = done.job
    if job is None or not job.ends_at:
        return []
    drain = drains_at(job, wanted)
    if (drain or job.ends_at) - now > SOON_SECONDS:
        return []
    when = time_left(job, now).removeprefix("until ")
    ending = f"job {job.id} ends {when}, and with it all that runs on its nodes"
    if drain:
        ending = f"{_draining(drain, now)}, and {ending}"
    after = "a run after its end asks for a new one"
    if drain and wanted.at_end == REQUEUE:
        after = "it is then put back into the queue, and serves again after another run"
    return [f"{ending}. `scontrol update` lengthens it where the site allows; {after}"]


def told(done: Outcome, wanted: Settings, now: float) -> str:
    """Return one line about an allocation that runs."""
    job = done.job
    if job is None:
        return "no allocation"
    where = f"job {job.id} holds {job.node_list} of {job.partition}"
    drain = drains_at(job, wanted)
    words = [" ".join(filter(None, [where, time_left(job, now)]))]
    words += [_draining(drain, now)] if drain else []
    return "; ".join([*words, *done.notes])


def _draining(at: int, now: float) -> str:
    if at <= now:
        return f"it has taken no more requests since {clock(at)}"
    return f"it takes no more requests from {clock(at)} on"
