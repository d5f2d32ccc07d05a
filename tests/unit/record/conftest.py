"""A small project that uses the callbacks of this checkout, and a way to run its playbook."""

from __future__ import annotations

import atexit
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import killed, warm

REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Ran:
    """What a run left: its exit status, its console and its record."""

    status: int
    output: str
    directory: Path | None

    @property
    def events(self) -> list[dict[str, Any]]:
        assert self.directory, self.output
        lines = (self.directory / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


@cache
def shared() -> Path:
    """Return a directory with the settings, the library and the home of all projects."""
    made = Path(tempfile.mkdtemp(prefix="projects-"))
    killed.remember(directory=str(made))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    (made / "ansible.cfg").write_text(
        "[defaults]\n"
        f"callback_plugins = {REPOSITORY / 'callback_plugins'}\n"
        f"action_plugins = {REPOSITORY / 'action_plugins'}\n"
        f"library = {made / 'library'}\n"
        "stdout_callback = stages\n"
        "callbacks_enabled = run_record\n"
        "gathering = explicit\n"
        "any_errors_fatal = False\n"
        "[connection]\npipelining = True\n"
        "[inventory]\nenable_plugins = yaml\n"
    )
    (made / "library").mkdir()
    # A gate as the project's own modules return it.
    (made / "library" / "gate_of_test.py").write_text(
        "from ansible.module_utils.basic import AnsibleModule\n"
        "module = AnsibleModule({'evidence': {'type': 'dict'}}, supports_check_mode=True)\n"
        "module.exit_json(changed=False, evidence=module.params['evidence'])\n"
    )
    return made


class Project:
    """A directory with an ansible.cfg, an inventory and a playbook."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copy(shared() / "ansible.cfg", directory)
        (directory / "library").mkdir()
        self.hosts({"a": {}, "b": {}})

    def hosts(self, hosts: dict[str, Any], cluster: str = "demo") -> None:
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": warm.python(),
            "cluster_name": cluster,
        }
        inventory = {"all": {"hosts": hosts, "vars": variables}}
        (self.directory / "hosts.yml").write_text(yaml.safe_dump(inventory))

    def play(self, *plays: dict[str, Any]) -> None:
        site = [{"hosts": "all", "gather_facts": False, **play} for play in plays]
        (self.directory / "site.yml").write_text(yaml.safe_dump(site, sort_keys=False))

    @property
    def environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        return {**clean, "HOME": str(self.directory), "COLUMNS": "100", "ANSIBLE_NOCOLOR": "1"}

    @property
    def command(self) -> list[str]:
        playbook = Path(sys.executable).parent / "ansible-playbook"
        return [str(playbook), "-i", "hosts.yml", "site.yml"]

    def latest(self) -> Path | None:
        link = self.directory / "runs" / "latest"
        return link.resolve() if link.exists() else None

    def run(self, *arguments: str) -> Ran:
        environment = self.environment
        settings = shared() / "ansible.cfg"
        if filecmp.cmp(settings, self.directory / "ansible.cfg", shallow=False):
            # The same for all projects, so that one warm ansible-playbook runs them.
            environment |= {
                "ANSIBLE_CONFIG": str(settings),
                "HOME": str(shared()),
                "VLLM_ANSIBLE_RUNS_DIR": str(self.directory / "runs"),
            }
        done = warm.play(
            [*self.command[1:], *arguments],
            self.directory,
            environment,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        return Ran(done.returncode, done.stdout, self.latest())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
