"""Measure which limits a process of the engine will really get, from its own supervisor."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from typing import Any, Optional

from .. import forked, launcher

Run = Callable[[list[str]], tuple[int, str, str]]
TITLES = {"nofile": "Max open files", "memlock": "Max locked memory"}
KINDS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK}
SECONDS = 5.0


def parse(text: str) -> dict[str, Optional[int]]:
    """Return the soft limits in a text of /proc/PID/limits by name; None is unlimited.

    memlock is in bytes. Soft ones are those that hold; the supervisors set both alike.
    """
    found = {line[:26].strip(): line[26:47].strip() for line in text.splitlines()}
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
    return {"of": "a service of systemd", **parse(output)}


def under_supervisord(daemon: Optional[int], wanted: Mapping[str, str]) -> dict[str, Any]:
    """Return the limits that our launcher reaches under this login or its running supervisord."""

    def measure(tell: forked.Tell) -> None:
        if daemon:
            with open(f"/proc/{daemon}/limits", encoding="utf-8") as handle:
                inherit(parse(handle.read()))
        launcher.set_limits(dict(wanted))
        for name, kind in KINDS.items():
            value = resource.getrlimit(kind)[0]
            tell(name, None if value == resource.RLIM_INFINITY else value)

    found = forked.run_each([measure], SECONDS, Exception)[0]
    of = f"supervisord, process {daemon}" if daemon else "this login, which starts supervisord"
    return {"of": of, **found}


def inherit(limits: Mapping[str, Optional[int]]) -> None:
    """Take on the limits of another process as far as this one may."""
    for name, value in limits.items():
        hard = resource.RLIM_INFINITY if value is None else value
        try:
            resource.setrlimit(KINDS[name], (hard, hard))
        except (ValueError, OSError):
            continue  # it has more than this login may take: what this login gets is the truth


def daemon_of(run_dir: str) -> Optional[int]:
    """Return the process of the cluster's supervisord, or None where none runs."""
    try:
        with open(os.path.join(run_dir, "supervisord.pid"), encoding="utf-8") as handle:
            pid = int(handle.read())
    except (OSError, ValueError):
        return None
    return pid if launcher.stat_of(pid) else None
