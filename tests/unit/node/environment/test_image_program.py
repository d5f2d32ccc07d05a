"""The program of an image in an environment of its own, run by a stand-in for Apptainer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vllm_ansible.node.environment import image_program

from .. import images

READ = "import sys; print([open(one).read() for one in sys.argv[1:]])"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Return the program by the name of a Python in an image."""
    image = images.sandbox(tmp_path / "sandbox")
    path = tmp_path / "python"
    path.write_text(image_program.program(str(image), str(tmp_path / "none"), "", ""))
    path.chmod(0o755)
    return path


def read(python: Path, tmp_path: Path, weights: str, *files: Path) -> str:
    """Return what files hold for an engine of these weights; its words name no path above them."""
    path = f"{images.install(tmp_path / 'bin')}:{os.environ['PATH']}"
    told = {"PATH": path, "APPTAINER_BIND": images.site_binds(), "HOME": "/"}
    done = subprocess.run(
        [python, "-c", READ, *files],
        env={**told, **({"ENGINE_BIND": weights} if weights else {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("through", ["disk", "link"])
def test_weights_that_are_links_are_seen(through: str, python: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    snapshot = disk / "hub/models--o--m/snapshots/1a 2b"
    blobs = disk / "hub/models--o--m/blobs"
    for place in (snapshot, blobs, disk / "other"):
        place.mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk")
    (blobs / "0123").write_text("weights")
    (disk / "other/c").write_text("config")
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
    (snapshot / "config.json").symlink_to(disk / "other/c")
    (snapshot / "broken").symlink_to("../nothing/there")
    weights = tmp_path / through / snapshot.relative_to(disk)
    files = [weights / "model.safetensors", weights / "config.json"]
    assert read(python, tmp_path, str(weights), *files) == "['weights', 'config']"


def test_without_weights_nothing_of_the_hosts_system_is_shown(python: Path, tmp_path: Path) -> None:
    bin_ = Path(images.install(tmp_path / "bin"))
    (bin_ / "apptainer").write_text('#!/bin/sh\necho "$3"\n')
    environment = {"PATH": f"{bin_}:{os.environ['PATH']}"}
    done = subprocess.run([python], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_shellcheck_has_nothing_to_say(python: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not on this machine")
    done = subprocess.run(["shellcheck", python], capture_output=True, text=True, check=False)
    assert done.stdout == ""
