"""Hosts that share packs of one environment: real tar, real squashfs, real mounts; a uv of ours.

The other host is this one without its environments: a pack is good for one path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import image_mount
from vllm_ansible.node.environment import work as environment_work

from ..fake_uv import silent


class Host:
    """What a module hands over on a host, and what the module does with it."""

    def __init__(self, wanted: dict[str, Any], form: str) -> None:
        self.asked = {**wanted, "form": form, "given": "", "user": ""}
        self.asked["shared_dir"] = str(Path(wanted["cluster_dir"]).parent / "shared")

    @property
    def wanted(self) -> dict[str, Any]:
        return environment_work.complete(self.asked)

    @property
    def place(self) -> Path:
        return Path(self.wanted["directory"])

    def look(self) -> dict[str, Any]:
        return environment_work.look(self.wanted)

    def run(self, state: str) -> bool:
        """Do what is due, and tell whether anything was."""
        wanted = {**self.wanted, "state": state}
        found = environment_work.look(wanted)
        changes = environment_work.changes(wanted, found)
        if changes:
            environment_work.work(wanted, found)(wanted, silent)
        return changes

    def packs(self) -> list[Path]:
        folder = Path(self.wanted["record"]).parent
        return [path for path in folder.iterdir() if path.suffix != ".json"]

    def become_another(self) -> None:
        """Have nothing but what is shared, as another machine."""
        image_mount.unmount(self.place, os.environ)
        shutil.rmtree(self.place.parent)
        self.place.parent.mkdir()


def can_mount(directory: Path) -> bool:
    """Tell whether this machine mounts an image at all."""
    (directory / "empty").mkdir()
    image = directory / "empty.squashfs"
    subprocess.run(["mksquashfs", directory / "empty", image, "-quiet", "-no-progress"], check=True)
    try:
        image_mount.mount(image, directory / "empty", os.environ)
    except BuildError:
        return False
    image_mount.unmount(directory / "empty", os.environ)
    return True


@pytest.fixture(autouse=True)
def unmounted(tmp_path: Path) -> Iterator[None]:
    """Leave nothing mounted, however a test ends."""
    yield
    for place in image_mount.below(str(tmp_path)):
        image_mount.unmount(place, os.environ)
