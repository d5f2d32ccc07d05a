"""A user of the site with a clone, an inventory, and runs on the login node."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.flows.clone import Ran
from vllm_ansible.inventory.site_host import unprivileged_run_dir

from .lab import USERS, SlurmLab
from .settings import GPUS, PARTITION

ENGINE = {
    "name": "chat",
    "model": "package:smollm2-135m-instruct",
    "nodes": 2,
    "vllm_args": {"enforce_eager": True, "max_model_len": 2048, "dtype": "float32"},
    "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
}


class Person:
    """One user; `variables` are those of the inventory and may be changed between runs."""

    numbers = itertools.count()

    def __init__(self, lab: SlurmLab, user: str, cluster: str) -> None:
        self.lab, self.user, self.cluster = lab, user, cluster
        self.clone = lab.controller(user)
        self.shared_dir = lab.home(user) / "vllm"
        self.variables: dict[str, Any] = {
            "cluster_name": cluster,
            "slurm_partition": PARTITION,
            "slurm_nodes": 2,
            "slurm_gpus_per_node": GPUS,
            "slurm_constraint": "h100",
            "slurm_time": "2:00:00",
            "shared_dir": str(lab.inside(self.shared_dir)),
            # What hosts of a lab are and real ones are not.
            "accelerator": "cpu",
            "accelerator_count": 1,
            "accelerator_model": "",
            "sources_environment": lab.lab.sources().environment,
            "engines": [ENGINE],
        }

    @property
    def inventory(self) -> Path:
        return self.clone / "inventories" / self.cluster

    @property
    def run_dir(self) -> str:
        return unprivileged_run_dir(self.cluster, USERS[self.user])

    def write(self) -> None:
        """Write the inventory as a user has it: a line for the plugin, and variables."""
        (self.inventory / "group_vars").mkdir(parents=True, exist_ok=True)
        (self.inventory / "slurm.yml").write_text("plugin: slurm_nodes\n")
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(self.variables))
        for path in (self.inventory, *self.inventory.rglob("*")):
            os.chown(path, USERS[self.user], USERS[self.user])

    def start(self, *arguments: str, playbook: str = "site.yml") -> tuple[Any, Path, Path]:
        """Start a playbook; return its process, its console and its records."""
        self.write()
        runs = self.clone / "runs" / f"{os.getpid()}-{next(self.numbers)}"
        runs.mkdir(parents=True)
        for path in (runs.parent, runs):
            os.chown(path, USERS[self.user], USERS[self.user])
        words = [
            "ansible-playbook",
            "-i",
            str(self.lab.inside(self.inventory)),
            playbook,
            *arguments,
        ]
        settings = {
            "VLLM_ANSIBLE_RUNS_DIR": self.lab.inside(runs),
            "ANSIBLE_NOCOLOR": "1",
            "COLUMNS": "160",
        }
        given = [f"{name}={value}" for name, value in settings.items()]
        inside = f"cd {self.lab.inside(self.clone)} && exec env {shlex.join([*given, *words])}"
        console = runs / "console"
        with console.open("w") as output:
            process = subprocess.Popen(
                self.lab.command(self.user, ["bash", "-c", inside]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        return process, console, runs

    def run(self, *arguments: str, playbook: str = "site.yml", seconds: float = 1800) -> Ran:
        process, console, runs = self.start(*arguments, playbook=playbook)
        try:
            status = process.wait(seconds)
        finally:
            process.kill()
        return Ran(status, console.read_text(), runs)

    def on(self, host: str, *argv: str, check: bool = True) -> str:
        """Run a command as this user on a node, beside Slurm."""
        done = subprocess.run(
            [
                *("podman", "exec", "--user", self.user),
                *(self.lab.lab.record.host(host).container, *argv),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def jobs(self, states: str = "") -> list[list[str]]:
        """Return number, name and state of this user's jobs."""
        words = ["squeue", "--noheader", "--user", self.user, "--format=%i %j %T"]
        said = self.lab.root(self.lab.login, *words, *([f"--states={states}"] if states else []))
        return [line.split() for line in said.splitlines()]

    def processes(self, host: str) -> list[str]:
        """Return the commands of this user's processes on a node."""
        said = self.lab.root(host, "ps", "-u", self.user, "-o", "args=", check=False)
        return [line.strip() for line in said.splitlines()]

    @property
    def endpoint(self) -> dict[str, Any]:
        """What is published where the engines answer."""
        path = self.shared_dir / self.cluster / "endpoint.json"
        found: dict[str, Any] = json.loads(path.read_text())
        return found
