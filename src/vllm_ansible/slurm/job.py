"""A job as squeue tells of it, and which of several is the cluster's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Fields in this order, with a separator that no field holds; times as seconds since the epoch.
FORMAT = "%i|%T|%r|%S|%e|%V|%D|%P|%N|%k"
TIMES = {"SLURM_TIME_FORMAT": "%s"}
WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
RUNNING = frozenset({"RUNNING", "CONFIGURING", "SIGNALING", "RESIZING", "SUSPENDED", "STOPPED"})
# On its way out; one that is requeued waits again after it.
ENDING = frozenset({"COMPLETING", "STAGE_OUT"})
COMMENT = "vllm-ansible"


@dataclass(frozen=True, slots=True)
class Job:
    """One job; times in seconds since the epoch, 0 where Slurm does not know them."""

    id: str
    state: str
    reason: str = ""
    starts_at: int = 0
    ends_at: int = 0
    submitted_at: int = 0
    nodes: int = 0
    partition: str = ""
    node_list: str = ""
    comment: str = ""

    @property
    def lives(self) -> bool:
        """Tell whether it holds nodes, waits for some, or is about to let go of them."""
        return self.state in WAITING | RUNNING | ENDING

    @property
    def runs(self) -> bool:
        """Tell whether it has its nodes and they can be used."""
        return self.state == "RUNNING"

    @property
    def digest(self) -> str:
        """What it was asked for with; empty where a site has put its own words there."""
        words = self.comment.split()
        return words[1] if len(words) == 2 and words[0] == COMMENT else ""


def comment(digest: str) -> str:
    """Return what a job is marked with."""
    return f"{COMMENT} {digest}"


def jobs(text: str) -> list[Job]:
    """Return the jobs of squeue's output, in the order of their numbers."""
    found = []
    for line in text.splitlines():
        fields = line.strip().split("|", 9)
        if len(fields) == 10 and fields[0].isdigit():
            number, state, reason, starts, ends, since, nodes, partition, names, mark = fields
            found.append(
                Job(
                    number,
                    state,
                    reason,
                    _number(starts),
                    _number(ends),
                    _number(since),
                    _number(nodes),
                    partition,
                    names,
                    "" if mark == "(null)" else mark,
                )
            )
    return sorted(found, key=lambda job: int(job.id))


def own(found: Iterable[Job]) -> tuple[Job | None, list[Job]]:
    """Return the job that is the cluster's, and others that were asked for twice.

    One that has its nodes comes before one that waits, and the older before the younger.
    """
    living = [job for job in found if job.lives]
    living.sort(key=lambda job: (job.state not in RUNNING, job.state not in WAITING, int(job.id)))
    return (living[0], living[1:]) if living else (None, [])


def last(found: Iterable[Job]) -> Job | None:
    """Return the youngest job that has ended and is still listed."""
    ended = [job for job in found if not job.lives]
    return ended[-1] if ended else None


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
