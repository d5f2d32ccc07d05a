"""When a job stops to take requests before its time is over, and how it is seen that it has."""

from __future__ import annotations

import os

from vllm_ansible.slurm.job import Job
from vllm_ansible.slurm.settings import Settings

# What the name of a mark begins with; the job's number follows, and how often it was started again.
MARK = "draining"


def drains_at(job: Job, wanted: Settings) -> int:
    """Return when draining begins, in seconds since the epoch; 0 where it does not, or who knows.

    Slurm looks once or twice a minute, and so may be up to a minute early.
    """
    asked_otherwise = job.digest not in ("", wanted.digest)
    if asked_otherwise or not job.ends_at or not wanted.drain_seconds:
        return 0
    return job.ends_at - wanted.drain_seconds


def drains(wanted: Settings, job: str, restarts: int) -> bool:
    """Tell whether a job drains now; see node/slurm/drain.py for why its directory is listed."""
    try:
        return f"{MARK}-{job}-{restarts}" in os.listdir(wanted.directory)
    except OSError:
        return False
