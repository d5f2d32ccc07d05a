"""The two sides of the comparison, site.yml and the shell script: from nothing to an answer."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from vllm_ansible.benchmark import profile
from vllm_ansible.benchmark.timed import Timed, timed
from vllm_ansible.node import launcher

REPOSITORY = Path(__file__).resolve().parents[1]
CLUSTER = "bring-up"
# Away from those of a cluster that somebody runs here.
API_PORT, FIRST_PORT = 8390, 27000
COLD_SECONDS, CONVERGED_SECONDS = 1500, 300


class SideError(Exception):
    """One side did not come up."""


class Site:
    """site.yml with an inventory of its own, which serves what inventories/local serves."""

    name = "site.yml"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.inventory = directory / "hosts.yml"
        self.runs = directory / "runs"
        settings = yaml.safe_load(
            (REPOSITORY / "inventories/local/group_vars/all.yml").read_text(encoding="utf-8")
        )
        engines = [{**engine, "port": API_PORT} for engine in settings["engines"]]
        host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        directory.mkdir(parents=True)
        self.inventory.write_text(
            yaml.safe_dump(
                {
                    "all": {
                        "children": {"gpu": {"hosts": {"here": host}}},
                        "vars": {
                            **settings,
                            "cluster_name": CLUSTER,
                            "cluster_dir": str(directory / "cluster"),
                            "port_base": FIRST_PORT,
                            "engines": engines,
                        },
                    }
                }
            ),
            encoding="utf-8",
        )

    def cold(self) -> Timed:
        """Run everything that the script does as well, which is all but the measurement."""
        return self.run("--skip-tags", "benchmark", limit_seconds=COLD_SECONDS)

    def run(
        self, *options: str, playbook: str = "site.yml", limit_seconds: float = CONVERGED_SECONDS
    ) -> Timed:
        """Run a playbook, and refuse one that fails."""
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        argv = [program, "-i", str(self.inventory), str(REPOSITORY / playbook), *options]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
            "VLLM_ANSIBLE_RUNS_DIR": str(self.runs),
        }
        cost = timed(argv, environment, self.directory / "site.log", limit_seconds)
        if cost.status:
            raise SideError(f"{' '.join(argv)} failed: {profile.failure(self.events)}")
        return cost

    @property
    def events(self) -> list[dict[str, Any]]:
        """The record of the last run."""
        return profile.read(self.runs)

    def steps(self) -> dict[str, float]:
        """Return the seconds of each stage of the last run."""
        return profile.stages(self.events)

    def end(self) -> None:
        """Stop and remove everything."""
        self.run("-e", "teardown_everything=true", playbook="playbooks/teardown.yml")
        launcher.kill_descendants()
        shutil.rmtree(REPOSITORY / "state" / CLUSTER, ignore_errors=True)
        shutil.rmtree(self.directory)


class Script:
    """benchmarks/by_hand.sh."""

    name = "by_hand.sh"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self.log = directory / "by_hand.log"

    def cold(self) -> Timed:
        """Run the script, and refuse one that fails."""
        work = [str(self.directory / "work"), str(API_PORT), str(FIRST_PORT)]
        argv = [str(REPOSITORY / "benchmarks/by_hand.sh"), *work]
        cost = timed(argv, os.environ, self.log, COLD_SECONDS)
        if cost.status:
            last = self.log.read_text(errors="replace").splitlines()[-3:]
            raise SideError(f"by_hand.sh failed: {' | '.join(last)}")
        return cost

    def steps(self) -> dict[str, float]:
        """Return the seconds of each step."""
        lines = self.log.read_text(errors="replace").splitlines()
        marks = [line.split() for line in lines if line.startswith("step ")]
        starts = [(name, float(second)) for _, second, name in marks]
        return {name: after - began for (name, began), (_, after) in pairwise(starts)}

    def end(self) -> None:
        """Stop and remove everything."""
        launcher.kill_descendants()
        shutil.rmtree(self.directory)
