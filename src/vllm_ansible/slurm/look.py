"""What there is of an allocation and what a run would make of it; nothing is changed."""

from __future__ import annotations

from typing import Protocol

from vllm_ansible.slurm.job import ENDING, WAITING, Job, own
from vllm_ansible.slurm.settings import Settings


class Queue(Protocol):
    """What Slurm tells without being asked for anything; see commands.Slurm."""

    def jobs(self) -> list[Job]:
        """Return the cluster's jobs; raise Silent."""

    def node_names(self, node_list: str) -> list[str]:
        """Return the names of a job's nodes."""

    def silent(self, job: Job, nodes: list[str]) -> dict[str, str]:
        """Return the nodes that do not answer, with what was said."""

    def try_out(self) -> str:
        """Return what Slurm would do if it were asked now; raise PlanError where it refuses."""


def foreseen(slurm: Queue, wanted: Settings) -> tuple[bool, str]:
    """Return whether a run would change anything, and in words what; raise PlanError or Silent."""
    job, surplus = own(slurm.jobs())
    back = [one.id for one in surplus if one.state in WAITING]
    words = [f"job {job.id} is {job.state.lower()}"] if job else []
    if job and job.state in WAITING and job.digest not in ("", wanted.digest):
        back.append(job.id)
        job = None
    words += [f"would cancel job {', '.join(back)}"] if back else []
    asks = job is None or job.state in ENDING
    words += [f"would ask: {slurm.try_out()}"] if asks else []
    return asks or bool(back), "; ".join(words)


def unanswered(slurm: Queue, job: Job, wanted: Settings) -> str:
    """Return why not every host of the inventory can be reached in a job; empty where each can."""
    if not job.runs:
        return f"job {job.id} is {job.state.lower()}"
    nodes = slurm.node_names(job.node_list)
    if len(nodes) < wanted.nodes:
        return f"it has {len(nodes)} nodes, not {wanted.nodes}"
    if silent := slurm.silent(job, nodes):
        return f"no answer from {', '.join(silent)}"
    return ""
