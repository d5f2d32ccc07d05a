"""The parts of the tests that can run on machines of their own are together what CI runs."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.mark.expression import Expression

from tests.conftest import ROWS, Unmarked

ROOT = Path(__file__).parents[1]
CI = ROOT / ".ci/run"
PARTS = ("unit", "plays", "hosts", "engines", "lint")
MARKS = ("lab", "vm", "engine", "soak", "plays")
FILES = ("tests/test_lint.py", "tests/test_docs.py")


def target(tmp_path: Path, *part: str) -> str:
    """Return what .ci/run has `make` do on a machine that has all packages."""
    told = tmp_path / "told"
    programs = {"make": f'echo "$@" > {told}', "id": "echo 1000"}
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run([CI, *part], env={**os.environ, "PATH": path}, check=True)
    return told.read_text().strip()


def words(name: str) -> list[str]:
    """Return the words with which a target of the Makefile starts pytest."""
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("ARGS", "MAKE"))
    }
    said = subprocess.run(
        ["make", "-n", name], cwd=ROOT, env=clean, capture_output=True, text=True, check=True
    )
    (line,) = (one for one in said.stdout.splitlines() if " -m pytest " in one)
    return shlex.split(line.partition(" -m pytest ")[2])


def selects(given: list[str], file: str, marks: Collection[str]) -> bool:
    """Return whether pytest, so started, runs a test of a file that has these marks."""
    left_out = [word.removeprefix("--ignore=") for word in given if word.startswith("--ignore=")]
    only = [word for word in given if word.startswith("tests/")]
    if file in left_out or (only and file not in only):
        return False
    expression = Expression.compile(given[given.index("-m") + 1])
    return expression.evaluate(lambda mark, **_: mark in marks)


def test_every_test_that_ci_runs_is_in_one_part_and_no_other_test_is(tmp_path: Path) -> None:
    whole = words(target(tmp_path))
    parts = {part: words(target(tmp_path, part)) for part in PARTS}
    for number in range(len(MARKS) + 1):
        for marks in itertools.combinations(MARKS, number):
            for file in FILES:
                if file == "tests/test_lint.py" and {*marks} - {"soak"}:
                    continue  # it needs neither hosts nor engines, as is held below
                found = [part for part in PARTS if selects(parts[part], file, marks)]
                assert len(found) == selects(whole, file, marks), (file, marks, found)


def test_each_row_has_a_worker_of_its_own() -> None:
    given = words("test")
    assert int(given[given.index("-n") + 1]) == len({*ROWS.values()})


@pytest.mark.parametrize(
    ("marks", "program", "refused"),
    [
        (["parametrize"], ["/venv/bin/ansible-playbook", "site.yml"], True),
        ([], "ansible-inventory", True),
        (["plays"], ["/venv/bin/ansible-playbook", "site.yml"], False),
        (["lab"], ["ansible", "gpu"], False),
        ([], [Path("/venv/bin/python"), "ansible-playbook"], False),
    ],
)
def test_ansible_is_refused_to_a_test_that_does_not_say_so(
    marks: list[str], program: Any, refused: bool
) -> None:
    item: Any = SimpleNamespace(iter_markers=lambda: [SimpleNamespace(name=one) for one in marks])
    judge = Unmarked.judge
    if refused:
        with pytest.raises(pytest.fail.Exception, match=r"expected pytest\.mark\.plays"):
            judge(item, program)
    else:
        judge(item, program)


def test_lint_needs_neither_hosts_nor_engines() -> None:
    assert not re.search(r"\b(lab|vm|engine)\b", (ROOT / "tests/test_lint.py").read_text())


def test_what_is_no_part_is_refused_with_those_that_there_are() -> None:
    refused = subprocess.run([CI, "engine"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "one of unit, plays, hosts, engines, lint; found: engine" in refused.stderr


def test_the_parts_are_those_of_the_table() -> None:
    said = (ROOT / "CONTRIBUTING.md").read_text()
    assert re.findall(r"^\| `\.ci/run (\w+)` \|", said, re.MULTILINE) == list(PARTS)
