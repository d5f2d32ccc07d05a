#!/usr/bin/env python3
"""What a bring-up costs: against a shell script that does the same, again, and over more hosts.

.venv/bin/python benchmarks/bring_up.py pair --pairs 3
.venv/bin/python benchmarks/bring_up.py curve --hosts 1,2,4,8,16     (root: makes a lab)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import curve
from sides import Script, SideError, Site

from vllm_ansible.benchmark import profile
from vllm_ansible.benchmark.timed import Timed, TooLong
from vllm_ansible.node import launcher

AIM_RATIO, AIM_CONVERGED_SECONDS = 1.0, 6.0


def main() -> None:
    """Run one comparison and print what docs/benchmark.md wants to know."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    pair = verbs.add_parser("pair", help="site.yml against by_hand.sh, both from nothing")
    pair.add_argument("--pairs", type=int, default=3)
    pair.add_argument("--converged", type=int, default=5, help="converged runs to time")
    over = verbs.add_parser("curve", help="converged runs over lab hosts, without engines")
    over.add_argument("--hosts", default="1,2,4,8,16")
    over.add_argument("--runs", type=int, default=3)
    for verb in (pair, over):
        verb.add_argument("--directory", type=Path, help="where to work; temporary by default")
        verb.add_argument("--output", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    # What is started in the background falls to us when its parent ends, and ends with us.
    launcher.become_subreaper()
    tell(f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {os.cpu_count()} cores, load {load()}")
    tell(f"command: {' '.join(['benchmarks/bring_up.py', *sys.argv[1:]])}")
    directory = Path(tempfile.mkdtemp(prefix="bring-up-", dir=options.directory))
    try:
        if options.verb == "pair":
            found = pairs(directory, options.pairs, options.converged)
        else:
            counts = [int(count) for count in options.hosts.split(",")]
            found = curve.measure(directory, counts, options.runs, tell)
    except (SideError, TooLong) as error:
        sys.exit(f"bring_up: {error}; its logs are in {directory}")
    finally:
        launcher.kill_descendants()
    shutil.rmtree(directory)
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def pairs(directory: Path, count: int, converged: int) -> dict[str, Any]:
    """Bring both sides up in turn, the first one changing, and compare the medians."""
    ratios: list[float] = []
    cpu_ratios: list[float] = []
    costs = []
    again: dict[str, Any] = {}
    for number in range(count):
        one: dict[str, Timed] = {}
        for side in (Site, Script) if number % 2 == 0 else (Script, Site):
            running = side(directory / f"{number}-{side.__name__.lower()}")
            one[side.name] = running.cold()
            say(f"pair {number + 1}, {side.name}", one[side.name], running.steps())
            if isinstance(running, Site) and number == count - 1:
                again = run_again(running, converged)
            running.end()
        site, script = one[Site.name], one[Script.name]
        ratios.append(site.seconds / script.seconds)
        cpu_ratios.append(site.all_cpu_seconds / script.all_cpu_seconds)
        costs.append({name: vars(cost) for name, cost in one.items()})
    ratio = statistics.median(ratios)
    tell(f"ratio of wall times: {ratio:.2f}, median of {count} (aim: below {AIM_RATIO})")
    # Wall times say little while others keep the machine busy; the work done says the same then.
    tell(f"ratio of processor times: {statistics.median(cpu_ratios):.2f}")
    return {"ratio": ratio, "ratios": ratios, "cpu": cpu_ratios, "pairs": costs, "again": again}


def run_again(site: Site, count: int) -> dict[str, Any]:
    """Time the measurement of the engine, and whole runs that find everything as it should be."""
    measurement = site.run("--tags", "benchmark")
    say("stage benchmark alone, first time", measurement, site.steps())
    runs = []
    for number in range(count):
        cost = site.run()
        say(f"converged run {number + 1}, changed={profile.changed(site.events)}", cost)
        if profile.changed(site.events):
            raise SideError("a converged run changed something")
        runs.append(cost)
    median = statistics.median(cost.seconds for cost in runs)
    tell(f"converged: {median:.1f} s, median of {count} (aim: under {AIM_CONVERGED_SECONDS:.0f} s)")
    tell(f"  stages: {listed(site.steps())}")
    for kind, figures in profile.kinds(site.events).items():
        tell(f"  {kind}: {figures['tasks']:.0f} tasks, {figures['seconds']:.1f} s")
    for seconds, stage, task in profile.slowest(site.events):
        tell(f"  {seconds:6.2f} s  {stage}: {task}")
    return {"measurement": vars(measurement), "converged": [vars(cost) for cost in runs]}


def say(what: str, cost: Timed, steps: dict[str, float] | None = None) -> None:
    """Print one line about a command."""
    tell(
        f"{what}: {cost.seconds:.1f} s, {cost.cpu_seconds:.1f} s of CPU, with all it detached "
        f"{cost.all_cpu_seconds:.1f} s, others kept {cost.others:.0%} of the machine busy"
        + (f"; {listed(steps)}" if steps else "")
    )


def listed(steps: dict[str, float]) -> str:
    """Return steps with their seconds on one line."""
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in steps.items())


def load() -> str:
    """Return how many processes wanted to run in the last minutes."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def tell(line: str) -> None:
    """Print at once: a run takes minutes."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
