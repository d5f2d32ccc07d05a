"""What a converged run costs slurmctld: one shared step for each node, a step a command, and SSH.

    python -m benchmarks.slurm --nodes 2 8

Needs root: makes a lab with a real Slurm. The run is the stages `provision` and `prepare`, which
look at every host and change nothing the second time. Requests are counted by slurmctld (sdiag).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.slurm.lab import USERS, SlurmLab, slurm_lab
from tests.slurm.person import Person

STAGES = ("--tags", "provision,prepare")
# By connection, what an inventory says for it.
WAYS: dict[str, dict[str, Any]] = {
    "one shared step": {},
    "a step each time": {"slurm_persist_seconds": 0},
    "SSH": {"ansible_connection": "ssh"},
}


@dataclass(frozen=True)
class Cost:
    """One converged run: seconds, tasks on all nodes, requests to slurmctld, steps among them."""

    seconds: float
    tasks: int
    requests: int
    steps: int


def requests(lab: SlurmLab) -> dict[str, int]:
    """Return slurmctld's requests since the last reset, by their kind."""
    said = lab.root(lab.login, "sdiag")
    part = said.partition("by message type")[2].partition("by user")[0]
    found = re.findall(r"(\w+)\s+\( *\d+\) count:(\d+)", part)
    return {kind: int(count) for kind, count in found}


def open_ssh(person: Person) -> None:
    """Let a user log in to every node with a key of the shared home directory."""
    home, number = person.lab.home(person.user), USERS[person.user]
    keys = home / ".ssh"
    keys.mkdir(mode=0o700, exist_ok=True)
    key = keys / "id_ed25519"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (keys / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    (keys / "config").write_text("StrictHostKeyChecking accept-new\n")
    for path in (keys, *keys.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.chown(path, number, number)


def measured(person: Person) -> Cost:
    """Return what a run costs that changes nothing."""
    person.lab.root(person.lab.login, "sdiag", "--reset")
    started = time.monotonic()
    ran = person.run(*STAGES)
    seconds = time.monotonic() - started
    if (ran.status, ran.changed) != (0, []):
        raise SystemExit(ran.output)
    # A step that is kept open ends later, and its end is a request too.
    time.sleep(float(person.variables.get("slurm_persist_seconds", 0)) + 3)
    found = requests(person.lab)
    steps = found.get("REQUEST_JOB_STEP_CREATE", 0)
    return Cost(seconds, len(ran.of("task")), sum(found.values()), steps)


def compare(nodes: int, directory: Path) -> None:
    """Print a row for each way to reach so many nodes."""
    with slurm_lab(directory, nodes) as lab:
        person = Person(lab, "ann", "r1")
        person.variables |= {"slurm_nodes": nodes, "slurm_persist_seconds": 5}
        open_ssh(person)
        ran = person.run(*STAGES)
        if ran.status:
            raise SystemExit(ran.output)
        for name, more in WAYS.items():
            kept = dict(person.variables)
            person.variables |= more
            person.run(*STAGES)
            cost = measured(person)
            person.variables = kept
            print(
                f"| {nodes} | {name} | {cost.tasks / nodes:.0f} | {cost.steps / nodes:.1f} "
                f"| {cost.requests / nodes:.1f} | {cost.seconds:.0f} s |",
                flush=True,
            )
        lab.run("ann", "scancel", "--user=ann")


def main() -> None:
    """Measure each number of nodes in a lab of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 8])
    print("| nodes | connection | tasks a node | steps a node | requests a node | time |")
    print("|---|---|---|---|---|---|")
    for nodes in parser.parse_args().nodes:
        with TemporaryDirectory(prefix="vllm-slurm-") as directory:
            compare(nodes, Path(directory))


if __name__ == "__main__":
    main()
