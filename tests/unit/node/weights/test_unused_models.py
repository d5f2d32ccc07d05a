"""Models that are in use are known by what uses them, not only by the inventory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_ansible.node.weights import unused_models
from vllm_ansible.node.weights.store.shelf import Shelf

SLUG = "org--model"


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    """Make a directory with one model that no engine serves."""
    (tmp_path / SLUG).mkdir()
    (tmp_path / SLUG / "a.safetensors").write_bytes(b"0" * 4096)
    (tmp_path / f"{SLUG}.json").write_text('{"source": "hub"}')
    (tmp_path / ".store" / SLUG).mkdir(parents=True)
    return tmp_path


def why(models_dir: Path) -> str:
    (found,) = unused_models.look(str(models_dir), [])
    return found.why


def test_a_model_that_nothing_uses_may_go(models_dir: Path) -> None:
    assert why(models_dir) == ""


def test_a_process_with_its_directory_in_the_command_keeps_it(models_dir: Path) -> None:
    command = [sys.executable, "-c", "input()", "--model", str(models_dir / SLUG)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert why(models_dir) == f"process {process.pid} uses it"
        finally:
            process.kill()


def test_a_process_with_a_file_of_it_mapped_keeps_it(models_dir: Path) -> None:
    code = (
        "import mmap, sys\n"
        "content = open(sys.stdin.readline().strip(), 'rb')\n"
        "held = mmap.mmap(content.fileno(), 0, prot=mmap.PROT_READ)\n"
        "print('mapped', flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin and process.stdout
            process.stdin.write(f"{models_dir / SLUG / 'a.safetensors'}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "mapped\n"
            assert why(models_dir) == f"process {process.pid} uses it"
        finally:
            process.kill()


def test_a_process_that_uses_a_model_with_a_longer_name_does_not_keep_it(models_dir: Path) -> None:
    command = [sys.executable, "-c", "input()", "--model", str(models_dir / f"{SLUG}-2")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            assert why(models_dir) == ""
        finally:
            process.kill()


def test_a_model_that_a_run_completes_stays(models_dir: Path) -> None:
    with Shelf(str(models_dir), SLUG).tend(lambda: None):
        assert why(models_dir) == "a run is completing it"
    assert why(models_dir) == ""


def test_a_removal_that_was_interrupted_is_gone_on_with(
    models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: str) -> None:
        os.unlink(Path(path, "a.safetensors"))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shutil, "rmtree", interrupted)
        unused_models.remove(str(models_dir), [SLUG])
    (left,) = unused_models.look(str(models_dir), [])
    unused_models.remove(str(models_dir), [left.name])
    assert unused_models.look(str(models_dir), []) == []
    assert list(models_dir.iterdir()) == [models_dir / ".store"]
