"""A clone of the working tree, its inventories, and its runs as a user would start them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import yaml

from tests import killed
from vllm_ansible.inventory.site_host import unprivileged_run_dir

REPOSITORY = Path(__file__).parents[2]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
MINUTE = 60


def wait_until(condition: Callable[[], Any], seconds: float, what: str, every: float = 0.05) -> Any:
    """Return what the condition finds, as soon as it finds anything.

    every: seconds between two looks; more of them where a look costs more than a file.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(every)
    return found


@dataclass(frozen=True)
class Ran:
    """What a run left: its exit status, its console and its record."""

    status: int
    output: str
    runs: Path

    @property
    def directory(self) -> Path:
        return (self.runs / "latest").resolve(strict=True)

    @property
    def events(self) -> list[dict[str, Any]]:
        return read_events(self.runs)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def failure(self) -> dict[str, Any]:
        """The one failure of the run; what a person reads of it is printed too."""
        assert self.status != 0, self.output
        failures = self.of("failure")
        assert failures, self.output
        # The console wraps a long message, with the seconds of the stage after its first line.
        assert failures[0]["msg"][:48] in " ".join(self.output.split())
        return failures[0]

    @property
    def changed(self) -> list[str]:
        """The tasks that changed something, with their hosts."""
        tasks = self.of("task")
        return [f"{one['task']} ({one['host']})" for one in tasks if one["status"] == "changed"]

    @property
    def stages(self) -> dict[str, bool]:
        """How each stage ended; one that was cut short has no end."""
        return {one["stage"]: one["ok"] for one in self.of("stage_end")}

    def evidence(self, gate: str) -> list[dict[str, Any]]:
        return [one for one in self.of("evidence") if one["gate"] == gate]


def read_events(runs: Path) -> list[dict[str, Any]]:
    """Return the whole lines of the newest record, also while it is written."""
    path = runs / "latest" / "events.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def descendants(pid: int) -> list[tuple[int, str]]:
    """Return number and start time of every process below this one."""
    below: list[tuple[int, str]] = []
    # A worker may end while it is looked at.
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            below += [(int(child), fields[19]), *descendants(int(child))]
    return below


class Running:
    """An ansible-playbook that has been started and may be killed."""

    def __init__(self, process: subprocess.Popen[str], runs: Path, console: Path) -> None:
        self.process, self.runs, self.console = process, runs, console

    def wait_for(self, seen: Callable[[dict[str, Any]], bool], what: str, seconds: float) -> None:
        """Wait for an event; a run that ends before it is a failure of the test."""

        def happened() -> bool:
            if any(seen(event) for event in read_events(self.runs)):
                return True
            assert self.process.poll() is None, f"over before {what}:\n{self.console.read_text()}"
            return False

        wait_until(happened, seconds, what)

    def kill(self) -> None:
        """SIGKILL ansible-playbook itself; it has no chance to tell its workers or its hosts."""
        children = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        (self.runs / "killed").write_text(json.dumps(children))

    def result(self, seconds: float = 30 * MINUTE) -> Ran:
        """Wait for its end. The bound is for what hangs: a bring-up took 10 minutes at load 20."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return Ran(status, self.console.read_text(), self.runs)


def copy_bytecode(source: Path, target: Path) -> None:
    """Copy what `make` has compiled of a file that was copied with its time.

    A user's clone has it from `make`, too. Where Python may not write bytecode, every process of
    every run would compile all of it anew.
    """
    if source.suffix == ".py":
        compiled = Path(cache_from_source(str(source)))
        if compiled.is_file():
            kept = Path(cache_from_source(str(target)))
            kept.parent.mkdir(exist_ok=True)
            shutil.copy2(compiled, kept)


class Clone:
    """A directory with the working tree as a fresh clone would have it, and its own state/."""

    numbers = itertools.count()

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            source, target = REPOSITORY / name, directory / name
            # A file that was removed but not committed yet is still listed.
            if source.is_file() and not name.startswith("tests/"):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
                copy_bytecode(source, target)

    def inventory(self, name: str, hosts: dict[str, Any], **variables: Any) -> Path:
        """Write an inventory of this clone and return its directory."""
        if cluster := variables.get("cluster_name"):
            killed.remember(run_dir=unprivileged_run_dir(cluster, os.getuid()))
        directory = self.directory / "inventories" / name
        (directory / "group_vars").mkdir(parents=True, exist_ok=True)
        content = {"all": {"children": {"gpu": {"hosts": hosts}}}}
        (directory / "hosts.yml").write_text(yaml.safe_dump(content))
        (directory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))
        return directory

    def start(self, inventory: Path, *arguments: str, playbook: str = "site.yml") -> Running:
        """Start ansible-playbook in the clone, with a record of its own."""
        runs = self.directory / "runs" / f"{os.getpid()}-{next(self.numbers)}"
        runs.mkdir(parents=True)
        clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        console = runs / "console"
        with console.open("w") as output:
            process = subprocess.Popen(
                [PLAYBOOK, "-i", inventory, playbook, *arguments],
                cwd=self.directory,
                env={
                    **clean,
                    "VLLM_ANSIBLE_RUNS_DIR": str(runs),
                    "ANSIBLE_NOCOLOR": "1",
                    # Else as wide as whatever runs the tests says, and messages wrap anywhere.
                    "COLUMNS": "160",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        return Running(process, runs, console)

    def run(self, inventory: Path, *arguments: str, playbook: str = "site.yml") -> Ran:
        return self.start(inventory, *arguments, playbook=playbook).result()
