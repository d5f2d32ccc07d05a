"""Run a command and say what it cost: wall-clock, its own CPU, and what others took meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_ansible.node import launcher

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Timed:
    """What one command cost.

    cpu_seconds is of the command and what it waited for, all_cpu_seconds of what it has detached,
    too; others is the share of the machine, 0 to 1, that was busy with none of it.
    """

    status: int
    seconds: float
    cpu_seconds: float
    all_cpu_seconds: float
    others: float


class TooLong(Exception):
    """A command was ended because its time was up."""


def timed(
    argv: Sequence[str], environment: Mapping[str, str], log: Path, limit_seconds: float
) -> Timed:
    """Run a command in a session of its own, its output in a log."""
    busy, ours, began = machine_seconds(), our_seconds(), time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - argv built here, no shell
            list(argv),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        late = threading.Timer(limit_seconds, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        _, wait_status, usage = os.wait4(process.pid, 0)
        process.returncode = launcher.exit_status(wait_status)  # or Popen would wait once more
        late.cancel()
    seconds = time.monotonic() - began
    if seconds >= limit_seconds:
        raise TooLong(f"{argv[0]} took more than {limit_seconds:.0f} s; its output is in {log}")
    spent = our_seconds() - ours
    others = machine_seconds() - busy - spent
    return Timed(
        status=process.returncode,
        seconds=seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        all_cpu_seconds=spent,
        others=max(0.0, others / (seconds * (os.cpu_count() or 1))),
    )


def machine_seconds() -> float:
    """Return for how long the machine's processors have worked since it started."""
    names = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, interrupts, soft = map(int, names[:7])
    return (user + nice + system + interrupts + soft) / TICKS


def our_seconds() -> float:
    """Return the processor time of this process and of all it has started, ended or not.

    What was detached counts where the caller is a subreaper.
    """
    total = 0.0
    launcher.reap()  # what fell to us and has ended counts from here on
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    for pid in launcher.descendants({os.getpid()}, launcher.process_table()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # utime, stime, and those of the children it has waited for.
        total += sum(map(int, fields[11:15])) / TICKS
    return total
