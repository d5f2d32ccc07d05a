"""What an inventory says about an allocation, checked before Slurm is asked for anything."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vllm_ansible.problem import PlanError, Problem, close_match

CLUSTER = re.compile(r"[a-z][a-z0-9-]{0,15}")
# Minutes, minutes:seconds, hours:minutes:seconds, days-hours and longer: what sbatch takes.
TIME = re.compile(r"\d+(-\d+(:\d+){0,2}|(:\d+){0,2})|UNLIMITED|INFINITE", re.IGNORECASE)
GRES = re.compile(r"gpu(:[A-Za-z0-9_.-]+)?(:\d+)?")
END, REQUEUE = "end", "requeue"
DRAIN_SECONDS = 300
# What sbatch takes for --signal; below, nothing would be left for requests.
LEAST_DRAIN_SECONDS, MOST_DRAIN_SECONDS = 60, 65535
# Of the time for draining, what ranks, Ray and files of a node have for their end.
ENDING_SECONDS = 40


@dataclass(frozen=True, slots=True)
class Settings:
    """One allocation: `nodes` of them, each with the GPUs that the site's own form asks for."""

    cluster: str
    nodes: int
    shared_dir: str
    partition: str = ""
    account: str = ""
    gpus_per_node: int = 0
    gres: str = ""
    constraint: str = ""
    time: str = ""
    reservation: str = ""
    extra_args: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    python: str = "/usr/bin/python3"
    persist_seconds: int = 120
    drain_seconds: int = DRAIN_SECONDS
    at_end: str = END

    @property
    def job_name(self) -> str:
        """The name by which the job is found again."""
        return f"vllm-{self.cluster}"

    @property
    def directory(self) -> str:
        """The cluster's directory on the shared file system."""
        return f"{self.shared_dir.rstrip('/')}/{self.cluster}"

    @property
    def serving_seconds(self) -> int:
        """How long requests may still take once no new ones are; 0 where nothing is drained."""
        return max(self.drain_seconds - ENDING_SECONDS, 0)

    @property
    def digest(self) -> str:
        """What a job was asked for with, in short."""
        asked = {**asdict(self), "shared_dir": "", "persist_seconds": 0}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def gpus(self) -> tuple[int, str]:
        """Number and model of a node's GPUs as asked for; 0 and empty where it is not said."""
        parts = self.gres.split(":")[1:] if self.gres else []
        count = int(parts[-1]) if parts and parts[-1].isdigit() else (1 if self.gres else 0)
        model = parts[0] if parts and not parts[0].isdigit() else ""
        return self.gpus_per_node or count, model


# Variable, field, type and whether it has to be there.
FIELDS: tuple[tuple[str, str, type, bool], ...] = (
    ("cluster_name", "cluster", str, True),
    ("slurm_nodes", "nodes", int, True),
    ("shared_dir", "shared_dir", str, True),
    ("slurm_partition", "partition", str, False),
    ("slurm_account", "account", str, False),
    ("slurm_gpus_per_node", "gpus_per_node", int, False),
    ("slurm_gres", "gres", str, False),
    ("slurm_constraint", "constraint", str, False),
    ("slurm_time", "time", str, False),
    ("slurm_reservation", "reservation", str, False),
    ("slurm_extra_args", "extra_args", list, False),
    ("site_setup", "setup", list, False),
    ("slurm_python", "python", str, False),
    ("slurm_persist_seconds", "persist_seconds", int, False),
    ("slurm_drain_seconds", "drain_seconds", int, False),
    ("slurm_at_end", "at_end", str, False),
)
READ = tuple(variable for variable, _, _, _ in FIELDS)
_EXPECTED = {
    "cluster_name": "a small letter, then at most 15 small letters, digits or dashes",
    "slurm_nodes": "a whole number, 1 or more",
    "shared_dir": "an absolute path without spaces, on a file system that all nodes share",
    "slurm_gpus_per_node": "a whole number",
    "slurm_persist_seconds": "a whole number",
    "slurm_drain_seconds": f"0, or from {LEAST_DRAIN_SECONDS} to {MOST_DRAIN_SECONDS} seconds",
    "slurm_at_end": f"{END} or {REQUEUE}",
    "slurm_gres": "as the site writes it, such as gpu:h100:4",
    "slurm_time": 'as sbatch takes it, in quotes: "3-00:00:00", or "90" for minutes',
    "slurm_extra_args": "a list of arguments of sbatch",
    "site_setup": "a list of lines for a shell",
}


def settings(variables: Mapping[str, Any], where: str) -> Settings:
    """Return the settings of an inventory; raise PlanError with all that is wrong with them."""
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    for variable, name, kind, required in FIELDS:
        value = variables.get(variable)
        if value in (None, ""):
            if required:
                problems.append(_missing(variable, variables, where))
            continue
        value = int(value) if kind is int and _is_number(value) else value
        if not isinstance(value, kind) or isinstance(value, bool):
            problems.append(_wrong(variable, value, where))
        else:
            found[name] = value
    problems += _refused(found, where)
    if problems:
        raise PlanError(problems)
    for name in ("extra_args", "setup"):
        found[name] = tuple(map(str, found.get(name, ())))
    return Settings(**found)


def _is_number(value: Any) -> bool:
    """Tell whether a text is a number: all that comes with -e is text."""
    return isinstance(value, str) and value.isdigit()


def _refused(found: Mapping[str, Any], where: str) -> list[Problem]:
    checks = (
        ("cluster_name", "cluster", lambda value: CLUSTER.fullmatch(value)),
        ("slurm_nodes", "nodes", lambda value: value >= 1),
        ("shared_dir", "shared_dir", lambda value: re.fullmatch(r"/[^\s'\"]+", value)),
        ("slurm_gres", "gres", lambda value: GRES.fullmatch(value)),
        ("slurm_time", "time", lambda value: TIME.fullmatch(value)),
        ("slurm_gpus_per_node", "gpus_per_node", lambda value: value >= 0),
        ("slurm_drain_seconds", "drain_seconds", _is_drain),
        ("slurm_at_end", "at_end", lambda value: value in (END, REQUEUE)),
    )
    problems = [
        _wrong(variable, found[name], where)
        for variable, name, fits in checks
        if name in found and not fits(found[name])
    ]
    if found.get("gres") and found.get("gpus_per_node"):
        asked = f"slurm_gres: {found['gres']} and slurm_gpus_per_node: {found['gpus_per_node']}"
        fix = "keep the one that this site takes"
        problems.append(Problem("GPUs are asked for twice", "one of both", asked, where, fix))
    return problems or _too_late(found, where)


def _is_drain(value: int) -> bool:
    return value == 0 or LEAST_DRAIN_SECONDS <= value <= MOST_DRAIN_SECONDS


def _too_late(found: Mapping[str, Any], where: str) -> list[Problem]:
    """Refuse a drain for which the job has no time, and a requeue that nothing would ask for."""
    drain, limit = found.get("drain_seconds", DRAIN_SECONDS), found.get("time", "")
    if found.get("at_end") == REQUEUE and not drain:
        asked = f"slurm_at_end: {REQUEUE} and slurm_drain_seconds: 0"
        fix = "give it time to drain: a job is put back once it has"
        return [Problem("a job is put back and not drained", "both", asked, where, fix)]
    if drain and limit and (have := seconds(limit)) is not None and have <= drain:
        return [
            Problem(
                f"slurm_drain_seconds is {drain}, and the whole job has {have} s",
                expected=f"less than slurm_time, {have} s",
                found=f"slurm_time: {limit}, slurm_drain_seconds: {drain}",
                where=where,
                fix="ask for more time, lower slurm_drain_seconds, or set it to 0",
            )
        ]
    return []


def seconds(limit: str) -> int | None:
    """Return a time as sbatch takes it; None without a limit."""
    days, dash, rest = limit.rpartition("-")
    if not rest.replace(":", "").isdigit():
        return None
    parts = [int(one) for one in rest.split(":")]
    # After days, hours come first; alone, one or two parts are minutes and seconds.
    parts = [0, *parts] if not dash and len(parts) < 3 else parts
    hours, minutes, rest_seconds = (*parts, 0, 0)[:3]
    return (int(days or 0) * 24 + hours) * 3600 + minutes * 60 + rest_seconds


def _missing(variable: str, variables: Mapping[str, Any], where: str) -> Problem:
    near = close_match(variable, [name for name in variables if name not in READ])
    return Problem(f"{variable} is not set", "a value", "nothing", where, near or f"set {variable}")


def _wrong(variable: str, value: Any, where: str) -> Problem:
    fix = "correct it"
    if variable == "slurm_time" and isinstance(value, int):
        # YAML takes 6:00:00 for a number of base 60.
        fix = "put it in quotes: YAML takes 6:00:00 for the number 21600"
    expected = _EXPECTED.get(variable, "a text")
    return Problem(f"{variable} is {value!r}", expected, repr(value), where, fix)
