"""What a machine lacks is said in one line, by whatever Python there is."""

from __future__ import annotations

import ctypes.util
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PREFLIGHT = Path(__file__).parents[1] / "tools/preflight.py"
# Pythons that are too old, as machines may still have them.
OLD = [
    python
    for release in ("3.6", "3.8", "3.9")
    for python in sorted(map(str, Path.home().glob(f".pyenv/versions/{release}.*/bin/python3")))
]


@pytest.fixture
def problems() -> Callable[[str], list[str]]:
    spec = importlib.util.spec_from_file_location("preflight", PREFLIGHT)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[str], list[str]] = module.problems
    return found


def run(python: str, directory: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, str(PREFLIGHT)],
        cwd=directory,
        env={"PATH": path} if path is not None else None,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_machine_that_has_everything_is_told_nothing(
    tmp_path: Path, problems: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: f"lib{name}.so.1")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 8 << 30))
    assert problems(str(tmp_path)) == []


def test_a_library_that_is_missing_is_named_with_its_package(
    tmp_path: Path, problems: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    (line,) = [line for line in problems(str(tmp_path)) if "libnuma" in line]
    assert line.endswith("apt-get install -y libnuma1")


def test_a_program_that_is_missing_stops_before_anything_is_installed(tmp_path: Path) -> None:
    done = run(sys.executable, tmp_path, path=str(tmp_path))
    assert done.returncode == 1
    assert "this machine is not ready: git is missing: apt-get install -y git\n" in done.stderr


def test_a_disk_without_room_is_named(problems: Any) -> None:
    # The file system of processes has no room at all.
    (line,) = [line for line in problems("/proc") if "GiB" in line]
    assert line == "0.0 GiB are free in /proc, 8 are needed: free some space"


@pytest.mark.skipif(not OLD, reason="no old Python on this machine")
@pytest.mark.parametrize("python", OLD)
def test_an_old_python_is_told_and_not_tripped_over(python: str, tmp_path: Path) -> None:
    done = run(python, tmp_path)
    release = ".".join(Path(python).parents[1].name.split(".")[:2])
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("this machine is not ready: Python 3.11 or later is needed, ")
    assert f" is {release}: " in first and first.endswith("make PYTHON=python3.11")
