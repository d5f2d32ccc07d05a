"""Style and types, as one test among the others: they keep one core busy for minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def others() -> Iterator[None]:
    """Put what no linter would pass where tests build environments of others."""
    place = ROOT / "build" / f"lint-test-{os.getpid()}"
    place.mkdir(parents=True)
    (place / "wrong.yml").write_text("a:   [1,2\n")
    (place / "wrong.py").write_text("import os,sys\nx: int = 'a'\n")
    yield
    shutil.rmtree(place)


@pytest.mark.usefixtures("others")
def test_make_lint_finds_nothing() -> None:
    done = subprocess.run(
        ["make", "lint"],
        cwd=ROOT,
        # What a make above this one has been given is not for the targets of this one.
        env={name: value for name, value in os.environ.items() if name != "MAKEFLAGS"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_no_output_of_a_build_is_in_the_repository() -> None:
    """setuptools takes into a wheel what lies in build/lib, whatever the sources are by now."""
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--ignored", "--exclude-standard"]
    done = subprocess.run(listed, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_no_file_names_the_host_of_an_index() -> None:
    """Which index is asked is the user's to say, also where a log of others is kept."""
    hosts = "|".join(rf"{name}\.org" for name in ("pypi", "pythonhosted"))
    done = subprocess.run(
        ["git", "-C", str(ROOT), "grep", "-nE", hosts], capture_output=True, text=True, check=False
    )
    # 1 where nothing is found.
    assert (done.returncode, done.stdout) == (1, ""), done.stderr


WRONG = "- name: Ping\n  no.such.module:\n"


@pytest.mark.plays
def test_one_syntax_check_of_all_finds_what_ansible_lint_finds_in_each(tmp_path: Path) -> None:
    play = "- name: Look\n  hosts: localhost\n  tasks:\n    "
    for name, content in {
        "playbooks/wrong.yml": play + WRONG.replace("\n", "\n    ").rstrip(" "),
        "playbooks/well.yml": play + "- name: Ping\n      ansible.builtin.ping:\n",
        "roles/wrong/tasks/main.yml": WRONG,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    well, wrong = (tmp_path / "playbooks" / f"{name}.yml" for name in ("well", "wrong"))
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    tool = import_module("tools.lint_ansible")
    assert tool.are_sound([well], [], {**os.environ, **path})
    assert not tool.are_sound([well, wrong], [], {**os.environ, **path})
    # With the role alone, whose tasks nothing else reads.
    wrong.unlink()
    done = subprocess.run(
        [sys.executable, ROOT / "tools/lint_ansible.py", "--offline", "--nocolor"],
        cwd=tmp_path,
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "syntax-check" in done.stdout and "roles/wrong" in done.stdout, done.stdout
