"""Give an allocation back, and nothing else of this user's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vllm_ansible.slurm.allocation import Queue
from vllm_ansible.slurm.job import WAITING, Job

LOOK_SECONDS = 1.0


@dataclass
class Ended:
    """Jobs that were taken back, and those that were still there when patience ended."""

    cancelled: list[str] = field(default_factory=list)
    left: list[Job] = field(default_factory=list)


def give_back(
    slurm: Queue,
    seconds: float,
    report: Callable[[str], None],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """Cancel the jobs of the cluster's name and wait until they have let go of their nodes."""
    done, deadline = Ended(), now() + seconds
    while True:
        done.left = [job for job in slurm.jobs() if job.lives]
        for job in done.left:
            known = job.id in done.cancelled
            # One that was being put back into the queue waits there again.
            if not known or job.state in WAITING:
                slurm.cancel(job.id)
            done.cancelled += [] if known else [job.id]
        if not done.left or now() > deadline:
            return done
        report(f"waiting until job {', '.join(job.id for job in done.left)} has ended")
        sleep(LOOK_SECONDS)
