"""Measure which limits a process of the engine will really get, from its own supervisor."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from typing import Any, Optional

from .. import forked, launcher, safely

Run = Callable[[list[str]], tuple[int, str, str]]
TITLES = {"nofile": "Max open files", "memlock": "Max locked memory"}
KINDS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK}
SECONDS = 30.0
# Columns of /proc/PID/limits: what holds, and how far a process may raise it.
SOFT, HARD = slice(26, 47), slice(47, 68)


def parse(text: str, column: slice) -> dict[str, Optional[int]]:
    """Return one column of a text of /proc/PID/limits by name; None is unlimited.

    memlock is in bytes.
    """
    found = {line[:26].strip(): line[column].strip() for line in text.splitlines()}
    return {
        name: None if found[title] == "unlimited" else int(found[title])
        for name, title in TITLES.items()
        if title in found
    }


def under_systemd(cluster: str, wanted: Mapping[str, str], run: Run) -> dict[str, Any]:
    """Return the limits of a service that asks for the engine's, named so that drop-ins count.

    A manager without CAP_SYS_RESOURCE lowers them without a word, and so may drop-ins of a site
    for all services: only a service can tell.
    """
    properties = [f"--property=Limit{name.upper()}={value}" for name, value in wanted.items()]
    status, output, errors = run(
        [
            "systemd-run",
            "--quiet",
            "--wait",
            "--pipe",
            "--collect",
            f"--unit=vllm-{cluster}-preflight",
            *properties,
            "/bin/cat",
            "/proc/self/limits",
        ]
    )
    if status != 0:
        return {"error": f"systemd-run: {errors.strip() or f'exit status {status}'}"}
    return {"of": "a service of systemd", **parse(output, SOFT)}


def under_supervisord(daemon: Optional[int], wanted: Mapping[str, str]) -> dict[str, Any]:
    """Return the limits that our launcher reaches under this login or its running supervisord."""

    def measure(tell: forked.Tell) -> None:
        beyond: dict[str, int] = {}
        if daemon:
            with open(f"/proc/{daemon}/limits", encoding="utf-8") as handle:
                beyond = inherit(parse(handle.read(), HARD))
        launcher.set_limits(dict(wanted))
        for name, kind in KINDS.items():
            value = resource.getrlimit(kind)[0]
            value = beyond_reach(wanted.get(name), beyond[name]) if name in beyond else value
            tell(name, None if value == resource.RLIM_INFINITY else value)

    found = forked.run_each([measure], SECONDS, Exception)[0]
    of = f"supervisord, process {daemon}" if daemon else "this login, which starts supervisord"
    return {"of": of, **found}


def inherit(limits: Mapping[str, Optional[int]]) -> dict[str, int]:
    """Take on the hard limits of another process, and return those this one may not have."""
    beyond = {}
    for name, value in limits.items():
        hard = resource.RLIM_INFINITY if value is None else value
        try:
            resource.setrlimit(KINDS[name], (hard, hard))
        except (ValueError, OSError):
            beyond[name] = hard
    return beyond


def beyond_reach(wanted: Optional[str], hard: int) -> int:
    """Return what a process gets that asks for a limit below a hard one that cannot be tried."""
    if wanted is None or wanted == "infinity":
        return hard
    return int(wanted) if hard == resource.RLIM_INFINITY else min(int(wanted), hard)


def daemon_of(run_dir: str) -> Optional[int]:
    """Return the process of the cluster's supervisord, or None where none runs."""
    try:
        found = safely.open_file(os.path.join(run_dir, "supervisord.pid"))
        with os.fdopen(found, encoding="utf-8") as handle:
            pid = int(handle.read(32))
    except (OSError, ValueError):
        return None
    return pid if launcher.stat_of(pid) else None
