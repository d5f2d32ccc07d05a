"""What runs Ansible passes under each Python that supported systems bring, where it is found."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
OWN = "{}.{}".format(*sys.version_info[:2])
# As pyenv's: it runs the version that the variable names, where a release stands for its latest.
SHIM = f"""#!/bin/sh
[ "$PYENV_VERSION" = {OWN} ] && exec {sys.executable} "$@"
echo "pyenv: $0: command not found" >&2
exit 127
"""


def load() -> Any:
    spec = importlib.util.spec_from_file_location("pythons", ROOT / "tools/pythons.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pythons = load()


def program(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)


# Some three minutes of two cores for each: make test-pythons.
@pytest.mark.soak
@pytest.mark.parametrize("release", pythons.further())
def test_what_runs_ansible_passes_under_each_further_python(release: str) -> None:
    found = pythons.look(release)
    if not found.program:
        pytest.skip(f"not run under Python {release}: {found.reason}")
    # What this run has been given by a make or a pytest above is not for those below.
    above = ("MAKEFLAGS", "MAKELEVEL", "PYTEST_")
    done = subprocess.run(
        ["make", "test-python", f"VENV=build/python{release}", f"PYTHON={found.program}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(above)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"-- Python {found.version}, " in done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 500, done.stdout


def test_a_name_that_is_not_there_is_no_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = pythons.look("3.12")
    assert (found.program, found.reason) == ("", "python3.12 is not on PATH")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("echo 'pyenv: python3.12: command not found' >&2; exit 127", "command not found"),
        ("echo \"ModuleNotFoundError: No module named 'ensurepip'\" >&2; exit 1", "'ensurepip'"),
        ("exit 3", "exit status 3"),
        ("echo 3.10.4 /usr/bin/python3.10", "python3.12 is Python 3.10.4"),
    ],
)
def test_a_name_with_no_such_python_behind_it_is_absent_with_its_reason(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "python3.12", f"#!/bin/sh\n{text}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = pythons.look("3.12")
    assert found.program == "" and told in found.reason


def test_a_shim_is_asked_for_the_version_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, f"python{OWN}", SHIM)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_VERSION", "2.7.18")
    found = pythons.look(OWN)
    assert (found.program, found.reason) == (sys.executable, "")


def test_one_line_says_of_each_what_was_found() -> None:
    there = pythons.Found("3.12", "3.12.1", "/usr/bin/python3.12")
    absent = pythons.Found("3.13", reason="python3.13 is not on PATH")
    told = "further Pythons: 3.12.1, no 3.13 (python3.13 is not on PATH)"
    assert pythons.line([there, absent]) == told


def test_where_there_is_no_further_python_the_list_fails_and_says_why(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/pythons.py"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("is not on PATH") == len(pythons.further())
