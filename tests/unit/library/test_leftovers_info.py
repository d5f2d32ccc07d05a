"""The module finds real processes that run from a directory, or in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

Module = Callable[..., dict[str, Any]]


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    """Start processes that end with the test, and return when they run."""
    with ExitStack() as all_of_them:

        def start(argv: list[str], **options: Any) -> int:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
            )
            all_of_them.callback(process.communicate)
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b"ready\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"ready\n"
            return process.pid

        yield start


def found(run_module: Module, directory: Path, check: bool = False) -> dict[int, str]:
    result = run_module("leftovers_info", {"cluster_dir": str(directory)}, [], check=check)
    assert not result["changed"]
    return {one["pid"]: one["command"] for one in result["processes"]}


def test_a_program_of_the_directory_is_found_wherever_it_works(
    run_module: Module, started: Any, tmp_path: Path
) -> None:
    (tmp_path / "c").mkdir()
    program = shutil.copy(shutil.which("cat") or "", tmp_path / "c/cat")
    hidden = started(["vllm"], executable=program, cwd="/")
    assert found(run_module, tmp_path / "c") == {hidden: "vllm"}
    assert found(run_module, tmp_path / "c", check=True) == {hidden: "vllm"}


def test_what_works_in_the_directory_or_names_it_is_found(
    run_module: Module, started: Any, tmp_path: Path
) -> None:
    directory = tmp_path / "c"
    (directory / "logs").mkdir(parents=True)
    (directory / "logs/empty").touch()
    inside = [
        started(["cat"], cwd=directory),
        started(["cat"], cwd=directory / "logs"),
        started(["cat", f"{directory}/logs/empty", "-"], cwd="/"),
    ]
    assert sorted(found(run_module, directory)) == sorted(inside)


def test_a_neighbour_with_a_longer_name_is_left_alone(
    run_module: Module, started: Any, tmp_path: Path
) -> None:
    (tmp_path / "c-2").mkdir()
    started(["cat"], cwd=tmp_path / "c-2")
    assert found(run_module, tmp_path / "c") == {}


def test_who_asks_does_not_count_itself_or_its_parents(tmp_path: Path) -> None:
    library = Path(__file__).parents[3] / "library"
    program = (
        "import ansible.module_utils, json, os, sys;"
        f"ansible.module_utils.__path__.append({str(library.parent / 'src')!r});"
        f"sys.path.insert(0, {str(library)!r});"
        "from leftovers_info import leftovers; print(json.dumps(leftovers(sys.argv[1])))"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, program, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n", done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_without_root_only_ones_own_processes_are_seen(
    started: Any, module_as_nobody: Module, nobodys: Path
) -> None:
    theirs = started(["cat"], cwd=nobodys)
    own = started(["cat"], cwd=nobodys, user=65534, group=65534, extra_groups=[])
    result = module_as_nobody("leftovers_info", {"cluster_dir": str(nobodys)})
    pids = [one["pid"] for one in result["processes"]]
    assert own in pids and theirs not in pids
