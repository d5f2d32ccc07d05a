"""A script whose vLLM and Ray are in an image, run by a stand-in for Apptainer."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node import images
from vllm_ansible.slurm.processes import engine_starts
from vllm_ansible.slurm.standalone import standalone
from vllm_ansible.slurm.wanted import wanted

from .layouts import CHAT, inventory

FAIL = """
fail() { echo "FAILED: $1"; exit 1; }
"""


def script(image: Path, **engine: Any) -> str:
    engines = [{**CHAT, "layout": {"tensor": 4, "pipeline": 2}, **engine}]
    return standalone(wanted(inventory(2, engines=engines, slurm_environment=str(image))))


def written(image: Path, directory: Path, then: str = "", **environment: str) -> Any:
    """Run what the script does about its image, for real, and then something else."""
    text = script(image)
    function = "image_programs() {" + text.partition("\nimage_programs() {")[2]
    function = function.partition("\n# ---- The job")[0]
    begin = f"set -euo pipefail\nIMAGE={image}\nENVIRONMENT=$DIRECTORY/environment\n"
    own = {"DIRECTORY": str(directory / "r1/sbatch-12"), "LOCAL": str(directory / "local")}
    return subprocess.run(
        ["bash", "-c", f"{begin}{FAIL}{function}\nimage_programs\n{then}"],
        env={**os.environ, "APPTAINER_BIND": images.site_binds(), **own, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{images.install(tmp_path / 'bin')}:{os.environ['PATH']}")
    return images.sif(tmp_path / "vllm.sif", images.sandbox(tmp_path / "sandbox"))


def test_its_programs_run_what_the_image_has_with_our_guard(image: Path, tmp_path: Path) -> None:
    guard = tmp_path / "r1/sbatch-12/node-0/python/vllm_guard"
    guard.mkdir(parents=True)
    (guard / "__init__.py").touch()
    (tmp_path / "weights").mkdir()
    then = '"$ENVIRONMENT/bin/vllm" serve "it\'s" "$ENGINE_BIND" || echo "$?"'
    done = written(image, tmp_path, then, ENGINE_BIND=str(tmp_path / "weights"))
    told, status = done.stdout.splitlines()
    found = json.loads(told)
    assert (found["argv"][:2], status, done.stderr) == (["serve", "it's"], "3", "")
    assert found["sees"] == [str(tmp_path / "weights")]
    assert found["guard"] == str(guard / "__init__.py")
    assert found["environ"]["EMULATED_FLAGS"] == "--nv"


def test_an_image_that_cannot_serve_ends_the_job(image: Path, tmp_path: Path) -> None:
    bare = written(image, tmp_path, PATH="/usr/bin:/bin")
    assert "neither apptainer nor singularity is on PATH" in bare.stdout
    (tmp_path / "sandbox/opt/vllm/bin/ray").unlink()
    without = written(images.sif(tmp_path / "no-ray.sif", tmp_path / "sandbox"), tmp_path)
    assert f"the image {tmp_path / 'no-ray.sif'} has no ray on its PATH" in without.stdout
    gone = written(tmp_path / "gone.sif", tmp_path)
    assert f"there is no image {tmp_path / 'gone.sif'}" in gone.stdout
    assert {one.returncode for one in (bare, without, gone)} == {1}


def test_all_processes_are_shown_the_weights() -> None:
    engines = [{**CHAT, "layout": {"tensor": 4, "pipeline": 2}}]
    asked = wanted(inventory(2, engines=engines, slurm_environment="/images/vllm.sif"))
    (engine,) = engine_starts(asked)
    assert engine.common["ENGINE_BIND"] == "/models/chat"
    venv = wanted(inventory(2, engines=engines, slurm_environment="/scratch/venv"))
    assert "ENGINE_BIND" not in engine_starts(venv)[0].common


def test_a_model_that_is_missing_is_fetched_by_the_image() -> None:
    text = script(Path("/images/vllm.sif"), model="org/name")
    assert "apptainer exec /images/vllm.sif hf download org/name" in text


@pytest.mark.parametrize("image", ["/images/vllm.sif", "/images/it's new.sif"])
def test_shellcheck_has_nothing_to_say(image: str, tmp_path: Path) -> None:
    path = tmp_path / "script.sbatch"
    path.write_text(script(Path(image)))
    done = subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)
    program = path.read_text().partition("<<'PROGRAM'\n")[2].partition("\nPROGRAM\n")[0]
    path.write_text(f"{program}\n")
    subprocess.run(["shellcheck", path], check=True)
