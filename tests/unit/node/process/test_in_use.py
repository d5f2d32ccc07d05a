"""What counts as use of a directory: its mount does not, what runs in it does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.process.in_use import users_of


def test_the_mount_of_an_image_by_a_login_user_is_no_use_of_it(
    nobodys: Path, as_nobody: Callable[[Callable[[], Any]], Any]
) -> None:
    helper = shutil.which("fusermount3") or shutil.which("fusermount")
    if not (shutil.which("squashfuse") and shutil.which("mksquashfs") and helper):
        pytest.skip("no squashfuse and squashfs-tools on this machine")
    (nobodys / "packed").mkdir()
    image, place = nobodys / "image", nobodys / "place"
    pack = ["mksquashfs", nobodys / "packed", image, "-quiet", "-no-progress"]
    subprocess.run(pack, check=True)

    def look() -> Any:
        place.mkdir()
        mounted = subprocess.run(["squashfuse", "-o", "ro", image, place], check=False)
        if mounted.returncode:
            return None
        try:
            idle = users_of([str(place)])
            with subprocess.Popen(["sleep", "60"], cwd=place) as sleeper:
                used = users_of([str(place)]) == {str(place): sleeper.pid}
                sleeper.kill()
            return idle, used
        finally:
            subprocess.run([str(helper), "-u", place], check=True)

    found = as_nobody(look)
    if found is None:
        pytest.skip(f"uid {os.geteuid()} cannot mount with squashfuse here")
    assert found == [{}, True]
