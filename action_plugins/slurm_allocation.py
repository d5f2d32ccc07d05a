"""See that a job of Slurm holds the cluster's nodes; see library/slurm_allocation.py."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.inventory.state_owner import claim_for_run
from vllm_ansible.problem import PlanError, Problem, as_result
from vllm_ansible.record import plays
from vllm_ansible.record.progress import Progress
from vllm_ansible.slurm.allocation import Watch, acquire
from vllm_ansible.slurm.commands import Lost, Silent, Slurm
from vllm_ansible.slurm.draining import drains, drains_at
from vllm_ansible.slurm.ending import give_back
from vllm_ansible.slurm.job import own
from vllm_ansible.slurm.kept import Kept
from vllm_ansible.slurm.leftovers import leftovers, remove
from vllm_ansible.slurm.look import foreseen, unanswered
from vllm_ansible.slurm.outcome import Outcome, told, warnings
from vllm_ansible.slurm.settings import READ, Settings, settings
from vllm_ansible.slurm.words import queue_line

# A run that ends by itself, or by a signal, is over by then.
HELD_SECONDS = 120.0
# KillWait of most sites is 30 s; epilogs take their time.
ENDING_SECONDS = 600.0
LOG_LINES = 5
STATE = Path(__file__).resolve().parents[1] / "state"
ARGUMENTS = {
    "state": {"type": "str", "choices": ["present", "absent", "look"], "default": "present"},
    "queue_hours": {"type": "float", "default": 0},
    "everything": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    """Ask, wait and give back from the login node; no other host is touched."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the job and its nodes, and what was done."""
        variables = task_vars or {}
        started_by = os.getppid()
        result = dict(super().run(tmp, variables))
        _, asked = self.validate_argument_spec(argument_spec=ARGUMENTS)
        # A worker of Ansible outlives its terminal, and nobody would see it wait.
        watch = Watch(
            self._line.show,
            lambda: "" if os.getppid() == started_by else "the run is gone",
            queue_seconds=asked["queue_hours"] * 3600,
        )
        try:
            wanted = settings(self._own(variables), "the inventory")
            watch.log = lambda job: _last_lines(wanted, job)
            watch.drains = lambda job, restarts: drains(wanted, job, restarts)
            kept, slurm = Kept(STATE / wanted.cluster), Slurm(wanted)
            if asked["state"] == "look":
                return {**result, **_look(slurm, wanted)}
            if asked["state"] == "absent":
                return {**result, **self._end(slurm, kept, wanted, asked["everything"])}
            if self._task.check_mode:
                return {**result, **_announce(slurm, wanted)}
            _make_directory(wanted)
            with kept.alone(self._line.show):
                claim_for_run(STATE / wanted.cluster, variables)
                done = acquire(slurm, wanted, kept, watch)
            return {**result, **_told(done, wanted)}
        except PlanError as refused:
            return {**result, "failed": True, **as_result(refused.problems)}
        except (Silent, Lost) as silence:
            problem = Problem(
                "Slurm does not answer",
                expected="an answer of slurmctld",
                found=str(silence),
                where="this machine",
                fix="`scontrol ping` asks it; run the same command again once it answers",
            )
            return {**result, "failed": True, **as_result([problem])}

    @cached_property
    def _line(self) -> Progress:
        return Progress(Display(), plays.stage(self._task.play), self._task.get_name())

    def _end(self, slurm: Slurm, kept: Kept, wanted: Settings, everything: bool) -> dict[str, Any]:
        """Give the allocation back, and remove what is left where its nodes are no longer."""
        if self._task.check_mode:
            job, _ = own(slurm.jobs())
            words = f"job {job.id} would be taken back" if job else "there is no job"
            changed = job is not None or bool(leftovers(wanted, everything))
            return {"changed": changed, "evidence": _evidence(words, {})}
        with kept.alone(self._line.show, HELD_SECONDS):
            done = give_back(slurm, ENDING_SECONDS, self._line.show)
            if not done.left:
                kept.forget()
        if done.left:
            left = ", ".join(f"{job.id} ({job.state})" for job in done.left)
            problem = Problem(
                f"jobs do not end: {left}",
                expected="no job of this cluster",
                found=left,
                where=f"job {left}",
                fix="ask the site: a process that cannot be killed keeps a node completing",
            )
            return {"changed": True, "failed": True, **as_result([problem])}
        removed = remove(wanted, everything)
        words = f"job {', '.join(done.cancelled)} was taken back" if done.cancelled else "no job"
        return {
            "changed": bool(done.cancelled or removed),
            "evidence": _evidence(words, {"jobs": done.cancelled, "removed": removed}),
        }

    def _own(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the variables that say what is asked for, evaluated."""
        return {
            name: plain(self._templar.template(variables[name]))
            for name in READ
            if name in variables
        }


def _make_directory(wanted: Settings) -> None:
    """Make the cluster's directory on the shared file system, for its owner to write."""
    try:
        Path(wanted.directory).mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        problem = Problem(
            f"{wanted.directory} cannot be made: {error.strerror}",
            expected="a directory of yours on a file system that all nodes share",
            found=str(error.strerror),
            where="shared_dir",
            fix="name a directory that you may write to",
        )
        raise PlanError(problem) from error


def _look(slurm: Slurm, wanted: Settings) -> dict[str, Any]:
    """Say what there is, until when, and whether all of it answers."""
    job, _ = own(slurm.jobs())
    now = time.time()
    words, why = "no job", "no job"
    if job:
        why = unanswered(slurm, job, wanted)
        words = (
            told(Outcome(job), wanted, now)
            if job.runs
            else queue_line(job, slurm.position(job), now)
        )
        words = f"{words}; {why}" if job.runs and why else words
    return {
        "changed": False,
        "answers": not why,
        "warnings": warnings(Outcome(job), wanted, now),
        "evidence": _evidence(words, {"job": job.id if job else ""}),
    }


def _announce(slurm: Slurm, wanted: Settings) -> dict[str, Any]:
    """Say what a run would do; Slurm itself is asked whether it would take the job."""
    changed, words = foreseen(slurm, wanted)
    return {"changed": changed, "evidence": _evidence(words, {})}


def _told(done: Outcome, wanted: Settings) -> dict[str, Any]:
    job = done.job
    values = {
        "job": job.id if job else "",
        "nodes": done.nodes,
        "restarts": done.restarts,
        "ends_at": job.ends_at if job else 0,
        "drains_at": drains_at(job, wanted) if job else 0,
    }
    return {
        "changed": done.changed,
        "warnings": warnings(done, wanted, time.time()),
        **values,
        "evidence": _evidence(told(done, wanted, time.time()), values),
    }


def _evidence(summary: str, values: dict[str, Any]) -> dict[str, Any]:
    return {"gate": "allocation", "summary": summary, "values": values}


def _last_lines(wanted: Settings, job: str) -> str:
    """Return the end of a job's log."""
    try:
        text = Path(wanted.directory, f"slurm-{job}.log").read_text(errors="replace")
    except OSError:
        return ""
    return " / ".join(text.strip().splitlines()[-LOG_LINES:])
