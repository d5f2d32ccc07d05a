"""A controller that rents from the emulated cloud by tasks of real plays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from tests.emulators.lambda_cloud import Cloud

from .world import EAST, GH200

ROOT = Path(__file__).parents[3]
KEY = "key-of-ann.0123456789"
# What a new machine shows, from a stand-in: the addresses of these machines lead nowhere.
KEYSCAN = '#!/bin/sh\nfor address; do :; done\necho "$address ssh-ed25519 AAAA"\n'


def variables(directory: Path, cloud: Cloud) -> dict[str, Any]:
    """Return what an inventory of two machines says, its key in a file that nobody else reads."""
    (directory / "key").write_text(KEY)
    (directory / "key").chmod(0o600)
    return {
        "cluster_name": "r1",
        "provision_provider": "lambda",
        "lambda_api_key_file": str(directory / "key"),
        "lambda_ssh_key_name": "mine",
        "lambda_instance_types": [GH200],
        "lambda_regions": [EAST],
        "lambda_endpoint": cloud.url,
        "lambda_request_seconds": 0,
        "lambda_launch_seconds": 0,
        "node_count": 2,
    }


class Site:
    """The actions in a copy of what they need, so that state/ is the test's own."""

    def __init__(
        self, directory: Path, cloud: Any, play: Any, said: dict[str, Any] | None = None
    ) -> None:
        self.directory, self.cloud, self._play = directory, cloud, play
        (directory / "src").symlink_to(ROOT / "src")
        shutil.copytree(ROOT / "action_plugins", directory / "action_plugins")
        (directory / "bin").mkdir()
        (directory / "bin/ssh-keyscan").write_text(KEYSCAN)
        (directory / "bin/ssh-keyscan").chmod(0o755)
        self.variables = said or variables(directory, cloud)

    def __call__(self, *tasks: dict[str, Any], flags: tuple[str, ...] = (), **more: Any) -> Any:
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        plugins = str(self.directory / "action_plugins")
        return self._play(
            list(tasks),
            {"here": {**self.variables, **more}},
            {"ANSIBLE_ACTION_PLUGINS": plugins, "PATH": path},
            flags,
        )

    @property
    def paid_for(self) -> list[str]:
        listed = self.cloud.account.list_instances()
        return sorted(one["name"] for one in listed if one["status"] != "terminating")


def machines(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "rented_machines": more}
