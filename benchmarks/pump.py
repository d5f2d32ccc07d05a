#!/usr/bin/env python3
"""What the idle pump adds: requests to idle ranks, and processor time, with clients and without.

.venv/bin/python benchmarks/pump.py

Emulated ranks of 50 ms a step behind HAProxy and the watch. The peer is the same router before
ranks that step by themselves, which need no pump.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.router import processor_seconds
from tests.unit.router.running import Running

STEP_SECONDS, TOKENS = 0.05, 100
PARTS = ("watch", "haproxy")


def used(running: Running) -> dict[str, float]:
    """Return the processor seconds of both parts of the router so far."""
    return {part: processor_seconds(running.processes[part].pid) for part in PARTS}


def added(running: Running) -> float:
    """Return the requests that the pump has made."""
    figures = running.figures()
    return sum(value for name, value in figures.items() if "pump_requests_total" in name)


def line(what: str, running: Running, seconds: float, before: dict[str, float], more: str) -> str:
    """Return a row: milliseconds of processor time for each second."""
    after = used(running)
    shares = [f"{(after[part] - before[part]) / seconds * 1000:.0f}" for part in PARTS]
    return f"| {what} | {' | '.join(shares)} | {more} |"


def measure(ranks: int, pump: bool, idle: float, answers: int) -> list[str]:
    """Return the rows of one way."""
    way = "pump, ranks step together" if pump else "no pump, ranks step by themselves"
    rows = []
    with (
        tempfile.TemporaryDirectory() as directory,
        Running(Path(directory), ranks, STEP_SECONDS, lockstep=pump, pump=pump) as running,
    ):
        for what, work in (("nobody asks", 0), ("one client", answers)):
            before, pumped, began = used(running), added(running), time.monotonic()
            for number in range(work):
                if running.complete(f"bench-{number}", tokens=TOKENS) != 200:
                    raise SystemExit("a request was not answered")
            if not work:
                time.sleep(idle)
            seconds = time.monotonic() - began
            count = added(running) - pumped
            each = count / work / (ranks - 1) if work else 0.0
            told = (
                f"{each:.1f} an answer and idle rank" if work else f"{count / seconds:.1f} a second"
            )
            rows.append(line(f"{way}: {what}", running, seconds, before, told))
    return rows


def main() -> None:
    """Measure both ways and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds without a client")
    parser.add_argument("--answers", type=int, default=5, help=f"of {TOKENS} tokens each")
    options = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f}")
    print("| way | watch, ms a second | HAProxy, ms a second | requests of the pump |")
    print("|---|---|---|---|")
    for pump in (False, True):
        for row in measure(options.ranks, pump, options.idle, options.answers):
            print(row, flush=True)


if __name__ == "__main__":
    main()
