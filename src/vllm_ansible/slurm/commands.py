"""Slurm as its own commands show it to this user."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from vllm_ansible.inventory.site_host import unprivileged_run_dir
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.slurm.channel import Node, StepEnded, run
from vllm_ansible.slurm.job import FORMAT, TIMES, Job, jobs
from vllm_ansible.slurm.script import script, submit_command
from vllm_ansible.slurm.settings import Settings
from vllm_ansible.slurm.step import without_wishes
from vllm_ansible.slurm.words import is_lost, is_over, refused

# slurmctld itself may take a minute to answer on a large site.
ANSWER_SECONDS = 180.0
# Nodes that are asked for an answer at the same time.
AT_ONCE = 16
# Slurm's own default of KillWait.
KILL_SECONDS = 30.0
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
Run = Callable[[Sequence[str], str], subprocess.CompletedProcess[str]]


class Silent(Exception):
    """slurmctld gave no answer: nothing is known."""


class Lost(Exception):
    """A job was asked for, and nobody knows whether it was taken."""


class Slurm:
    """The jobs of one cluster; `run` runs a command with a text as input."""

    def __init__(self, wanted: Settings, run: Run | None = None, user: str = "") -> None:
        self._wanted, self._run = wanted, run or _run
        # A number: names of users come from variables that anybody may set.
        self._user = user or str(os.getuid())

    def jobs(self) -> list[Job]:
        """Return this cluster's jobs, also those that ended a moment ago; raise Silent."""
        words = ["--noheader", f"--user={self._user}", f"--name={self._wanted.job_name}"]
        return jobs(self._ask(["squeue", *words, "--states=all", f"--format={FORMAT}"]))

    def position(self, job: Job) -> int | None:
        """Return a job's place among those that wait in its partition and that this user sees."""
        words = ["--noheader", f"--partition={job.partition}", "--states=PENDING", "--sort=-p,i"]
        try:
            listed = self._ask(["squeue", *words, "--format=%i"]).split()
        except Silent:
            return None
        return listed.index(job.id) + 1 if job.id in listed else None

    def node_names(self, node_list: str) -> list[str]:
        """Return the names of nodes, in Slurm's order, from a list such as gpu[01-04]."""
        found = self._ask(["scontrol", "show", "hostnames", node_list]).splitlines()
        # They become arguments and variables: nothing but names.
        return [name for name in found if NODE.fullmatch(name)]

    def restarts(self, job: Job) -> int:
        """Return how often a job was put back into the queue and started again."""
        found = re.search(r"\bRestarts=(\d+)", self._ask(["scontrol", "show", "job", "-o", job.id]))
        return int(found[1]) if found else 0

    def silent(self, job: Job, nodes: Sequence[str]) -> dict[str, str]:
        """Return the nodes on which nothing of the job answers yet, each with what was said."""

        def said(name: str) -> str:
            node = Node(job.id, name, self._wanted.python, self._wanted.persist_seconds)
            try:
                run(node, ["/bin/true"])
            except StepEnded as ended:
                return str(ended)
            return ""

        with ThreadPoolExecutor(AT_ONCE) as pool:
            words = dict(zip(nodes, pool.map(said, nodes), strict=True))
        return {name: text for name, text in words.items() if text}

    def submit(self) -> str:
        """Ask for the nodes and return the job's number; raise PlanError or Lost."""
        said = self._submit(submit_command(self._wanted))
        # Some sites' sbatch has more to say, above.
        found = re.findall(r"^(\d+)(?:;\S+)?$", said.stdout, re.MULTILINE)
        if said.returncode != 0 or not found:
            raise Lost(" ".join((said.stderr or said.stdout).split()))
        return str(found[-1])

    def try_out(self) -> str:
        """Return what Slurm would do if it were asked now; raise PlanError where it refuses."""
        first, *others = submit_command(self._wanted)
        said = self._submit([first, "--test-only", *others])
        return " ".join(said.stderr.replace("sbatch: ", "").split())

    def cancel(self, job: str) -> None:
        """Take a job back; one that has ended is no error."""
        try:
            self._ask(["scancel", job])
        except Silent as silence:
            # It may have ended since it was listed; some versions then fail without a word.
            if not is_over(str(silence).partition(": ")[2]):
                raise

    def _kill_seconds(self) -> float:
        """Return how long this site lets end what it is about to kill."""
        try:
            found = re.search(
                r"^KillWait\s*=\s*(\d+)", self._ask(["scontrol", "show", "config"]), re.M
            )
        except Silent:
            found = None
        return float(found[1]) if found else KILL_SECONDS

    def _submit(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        place = unprivileged_run_dir(self._wanted.cluster, os.getuid())
        text = script(self._wanted, place, self._kill_seconds())
        try:
            said = self._run(command, text)
        except subprocess.TimeoutExpired as late:
            raise Lost(f"no answer within {late.timeout:.0f} s") from late
        if said.returncode != 0:
            words = said.stderr.strip() or said.stdout.strip()
            if is_lost(words):
                raise Lost(words)
            raise PlanError(refused(words, shlex.join(command), self._wanted))
        return said

    def _ask(self, command: Sequence[str]) -> str:
        try:
            said = self._run(command, "")
        except subprocess.TimeoutExpired as late:
            raise Silent(f"{command[0]}: no answer within {late.timeout:.0f} s") from late
        if said.returncode != 0:
            raise Silent(f"{shlex.join(command)}: {said.stderr.strip() or said.stdout.strip()}")
        return said.stdout


def _run(command: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603  Slurm's own commands with lists of words
            list(command),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_SECONDS,
            # Only for what is read: what is shown keeps the form that people read.
            env={**without_wishes(os.environ), **(TIMES if command[0] == "squeue" else {})},
        )
    except FileNotFoundError as missing:
        problem = Problem(
            f"this machine has no {command[0]}",
            expected="a login node of the Slurm cluster",
            found=f"no {command[0]} on PATH",
            where="the machine that runs ansible-playbook",
            fix="run the same command on a login node",
        )
        raise PlanError(problem) from missing
