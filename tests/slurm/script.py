"""A script for sbatch as a user of the site has it made, submitted by sbatch and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.flows.clone import wait_until

from .lab import EVERY, USERS
from .person import Person

ASK = """
import sys, urllib.error, urllib.request
url, question, key_file = sys.argv[1:]
headers = {"Content-Type": "application/json"}
if key_file:
    headers["Authorization"] = f"Bearer {open(key_file).read().strip()}"
try:
    asked = urllib.request.Request(url, question.encode(), headers)
    print(urllib.request.urlopen(asked).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""
# What is a node's own, and not shared by all of them.
LOCAL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


class Script:
    """One script of a user's, and the job that it became."""

    def __init__(self, person: Person, name: str = "serve.sbatch") -> None:
        self.person, self.lab, self.job = person, person.lab, ""
        self.path = self.lab.home(person.user) / name

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Have it made by the verb, in the user's clone."""
        self.person.write()
        words = ["python3", "-m", "vllm_ansible.console", "sbatch", *arguments]
        words += ["-i", str(self.lab.inside(self.person.inventory))]
        words += ["--output", str(self.lab.inside(self.path))]
        clone = self.lab.inside(self.person.clone)
        inside = f'cd {clone} && PYTHONPATH=src NO_COLOR=1 exec "$@"'
        return self.lab.run(
            self.person.user, "bash", "-c", inside, "-", *words, check=False, seconds=900
        )

    def submit(self) -> None:
        """Submit it from the user's home, in which nothing of this project is."""
        said = self.lab.run(
            self.person.user, "sbatch", "--parsable", str(self.lab.inside(self.path))
        )
        self.job = said.stdout.strip()

    @property
    def directory(self) -> Path:
        return self.person.shared_dir / self.person.cluster / f"sbatch-{self.job}"

    @property
    def output(self) -> str:
        """What the job printed."""
        name = f"vllm-{self.person.cluster}-script-{self.job}.log"
        path = self.lab.home(self.person.user) / name
        return path.read_text() if path.exists() else ""

    @property
    def state(self) -> str:
        words = ["scontrol", "show", "job", "-o", self.job]
        said = self.lab.root(self.lab.login, *words)
        return said.partition("JobState=")[2].partition(" ")[0]

    def wait(self, condition: Callable[[], Any], seconds: float, what: str) -> None:
        """Wait for a condition; where the job ends before, its output says why."""

        def met() -> bool:
            if condition():
                return True
            assert self.state in ("PENDING", "RUNNING"), self.output
            return False

        try:
            wait_until(met, seconds, what, EVERY)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.output}") from None

    def ended(self, seconds: float = 600) -> str:
        """Wait for the end of the job and return its state."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
        wait_until(lambda: self.state in over, seconds, f"the end\n{self.output}", EVERY)
        return self.state

    def endpoint(self, seconds: float) -> dict[str, Any]:
        """Wait for what is published, and return it."""
        path = self.directory / "endpoint.json"
        self.wait(path.exists, seconds, "an endpoint")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def ask(self, told: dict[str, Any], with_key: bool = True) -> str:
        """Ask from the login node; return the answer, or the status of a refusal."""
        (engine,) = told["engines"]
        question = {"model": engine["model"], "messages": QUESTION, "temperature": 0}
        words = [f"{engine['url']}/chat/completions", json.dumps(question)]
        key = told["api_key_file"] if with_key else ""
        said = self.lab.run(self.person.user, "python3", "-c", ASK, *words, key).stdout.strip()
        if said.isdigit():
            return said
        return str(json.loads(said)["choices"][0]["message"]["content"])

    def left(self) -> list[str]:
        """Return what is still there of the user's on all nodes: processes, files."""
        found = self.files()
        for host in self.lab.computes:
            found += [f"{host}: {one}" for one in self.person.processes(host)]
        return found

    def files(self) -> list[str]:
        """Return the user's files on the nodes themselves."""
        found = []
        for host in self.lab.computes:
            here = ["find", *LOCAL, "-mindepth", "1", "-user", self.person.user]
            found += [f"{host}: {one}" for one in self.lab.root(host, *here).splitlines()]
        return found

    def modes(self) -> dict[str, str]:
        """Return the mode of the job's directory and of each file with a secret in it."""
        names = [self.directory, self.directory / "api_key"]
        names += [*self.directory.glob("ray_token"), *self.directory.glob("node-*/secrets/*")]
        names += self.directory.glob("node-*/engines/*/key.yaml")
        return {str(one.relative_to(self.directory)): oct(one.stat().st_mode)[-3:] for one in names}


def owned(person: Person, *places: Path) -> None:
    """Give files to a user of the site."""
    for place in places:
        for path in (place, *place.rglob("*")):
            os.lchown(path, USERS[person.user], USERS[person.user])
