"""A controller that rents from the emulated EC2: tasks of real plays, and whole commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests import warm
from tests.emulators.ec2 import Ec2
from tests.emulators.ec2_parts import AMI, environment
from tests.unit.conftest import one_path

from .aws_world import P5, A, B
from .rental import KEYSCAN, ROOT

# A made-up price: EC2 tells none.
USD = 50


def variables(directory: Path) -> dict[str, Any]:
    """Return what an inventory of two machines says."""
    (directory / "key.pub").write_text("ssh-ed25519 AAAA ann@here\n")
    return {
        "cluster_name": "r1",
        "aws_region": "us-east-2",
        "aws_zones": [A, B],
        "aws_instance_types": [P5],
        "aws_ami": AMI,
        "aws_ssh_public_key_file": str(directory / "key.pub"),
        "aws_ssh_from": ["198.51.100.7/32"],
        "aws_usd_per_hour": {P5: USD},
        "node_count": 2,
    }


def around(directory: Path, cloud: Ec2) -> dict[str, str]:
    """Return an environment without the user's own AWS, and with a stand-in for ssh-keyscan."""
    programs = directory / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "ssh-keyscan").write_text(KEYSCAN)
    (programs / "ssh-keyscan").chmod(0o755)
    return {**environment(cloud.url), "PATH": f"{programs}:{os.environ['PATH']}"}


class AwsTasks:
    """The actions in a copy of what they need, so that state/ is the test's own."""

    def __init__(self, directory: Path, cloud: Ec2, play: Any) -> None:
        self.directory, self.cloud, self._play = directory, cloud, play
        (directory / "src").symlink_to(ROOT / "src")
        shutil.copytree(ROOT / "action_plugins", directory / "action_plugins")
        self.variables = {**variables(directory), "provision_provider": "aws"}

    def arguments(self, *tasks: dict[str, Any], **more: Any) -> tuple[Any, ...]:
        plugins = {"ANSIBLE_ACTION_PLUGINS": str(self.directory / "action_plugins")}
        hosts = {"here": {**self.variables, **more}}
        return list(tasks), hosts, around(self.directory, self.cloud) | plugins

    def __call__(self, *tasks: dict[str, Any], flags: tuple[str, ...] = (), **more: Any) -> Any:
        return self._play(*self.arguments(*tasks, **more), flags)

    def start(self, *tasks: dict[str, Any]) -> subprocess.Popen[str]:
        """Start tasks in a session of their own, to be killed."""
        process: subprocess.Popen[str] = self._play.start(*self.arguments(*tasks), own_session=True)
        return process


class AwsSite:
    """A clone by links, with state/ and runs/ of its own, and an inventory of a few lines."""

    def __init__(self, directory: Path, cloud: Ec2) -> None:
        self.directory, self.cloud = directory, cloud
        for path in ROOT.iterdir():
            if path.name in ("action_plugins", "inventory_plugins"):
                # state/ is beside them.
                shutil.copytree(path, directory / path.name)
            elif path.name not in ("state", "runs", "inventories", ".git"):
                (directory / path.name).symlink_to(path)
        chat = {"name": "chat", "model": "package:smollm2-135m-instruct"}
        self.variables = {**variables(directory), "engines": [chat]}

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        place = self.directory / "inventories/rented"
        (place / "group_vars").mkdir(parents=True, exist_ok=True)
        (place / "aws.yml").write_text("plugin: aws_instances\n")
        (place / "group_vars/all.yml").write_text(yaml.safe_dump(self.variables))
        clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        here = one_path(self.directory)
        settings = {"HOME": str(self.directory), "ANSIBLE_CONFIG": str(here / "ansible.cfg")}
        return warm.play(
            ["-i", "inventories/rented", *arguments],
            self.directory,
            {**clean, **around(self.directory, self.cloud), **settings, "COLUMNS": "120"},
            program,
            timeout=240,
        )
