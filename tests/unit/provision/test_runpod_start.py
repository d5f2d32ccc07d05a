"""What a pod's container is started with, run by the shell that runs it there."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path

import pytest

from vllm_ansible.provision.runpod_start import PROGRAM, arguments

from .runpod_world import World


@pytest.mark.parametrize(
    ("image", "command", "ends"),
    [
        ("runpod/pytorch:1", "auto", "exec /start.sh'"),
        # What another image starts nobody knows here: its own command stays.
        ("docker.io/org/runpod/pytorch:1", "auto", ""),
        ("org/image:1", "/init --quiet", "exec /init --quiet'"),
        ("runpod/pytorch:1", "", ""),
    ],
)
def test_the_image_s_own_command_comes_last(
    runpod: World, image: str, command: str, ends: str
) -> None:
    runpod.converge(image=image, start_command=command)
    body = runpod.cloud.bodies[-1]
    assert body.get("args", "").endswith(ends) and ("args" in body) == bool(ends)
    assert [pod["args"] for pod in runpod.api.pods()] == [body.get("args", "")] * 2
    # A pod beside the cluster runs nothing that would have to start again.
    runpod.converge_part("load")
    assert "args" not in runpod.cloud.bodies[-1]


@pytest.mark.parametrize("there", [True, False])
def test_a_disk_that_has_our_processes_starts_them_and_an_empty_one_the_image_alone(
    runpod: World, tmp_path: Path, there: bool
) -> None:
    program = tmp_path / "c" / PROGRAM
    if there:
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho ours > {tmp_path}/ours\n")
        program.chmod(0o755)
    command = f"/usr/bin/touch {tmp_path}/image"
    words = arguments(runpod.wanted(start_command=command, cluster_dir=str(tmp_path / "c")))
    # As the entrypoint of an image gets them: split into words, and executed.
    subprocess.run(shlex.split(words), check=True)
    assert (tmp_path / "image").exists()
    until = time.monotonic() + 60
    while there and not (tmp_path / "ours").exists():
        assert time.monotonic() < until, "it was not started"
        time.sleep(0.02)
    assert (tmp_path / "ours").exists() == there
