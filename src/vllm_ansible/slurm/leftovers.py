"""What a cluster keeps on the file system that its nodes share, once there are no nodes."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from vllm_ansible.slurm.draining import MARK
from vllm_ansible.slurm.endpoint import FILE
from vllm_ansible.slurm.settings import Settings

# What every directory of a host has that this project made; see library/cluster_removal.py.
MARKS = ("processes", "logs", "tasks")
ENVIRONMENT = "environments/*/manifest.json"


def leftovers(wanted: Settings, everything: bool) -> list[Path]:
    """Return what is to go: what the job wrote, and with `everything` what its nodes kept.

    Only what is known to be ours: shared_dir may hold anything else of its owner's.
    """
    directory = Path(wanted.directory)
    found = [*sorted(directory.glob("slurm-*.log")), *directory.glob(FILE)]
    found += sorted(directory.glob(f"{MARK}-*"))
    if everything:
        # Of this cluster alone: others have directories of their own.
        found += [directory / "environments"] if any(directory.glob(ENVIRONMENT)) else []
        slots = sorted(directory.glob(f"{wanted.cluster}-*"))
        found += [slot for slot in slots if any((slot / mark).is_dir() for mark in MARKS)]
    return found


def remove(wanted: Settings, everything: bool) -> list[str]:
    """Remove it, and the directories that are empty then; return what was removed."""
    found = leftovers(wanted, everything)
    for path in found:
        # The job removes what it published itself, which this machine may not see at once.
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    directory = Path(wanted.directory)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
    return [str(path) for path in found]
