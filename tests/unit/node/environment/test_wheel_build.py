"""A build says how far it is, also while its compiler is silent, and what went wrong first."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import built_wheels, wheel_build

KEY = "k" * 64
# Prints what a build prints, and leaves a file where the wheel should be.
UV = """#!/bin/sh
echo "$@"
while [ "$1" != --out-dir ]; do shift; done
echo "[12/40] Building CXX object a.o"
%s
"""


@pytest.fixture
def wanted(tmp_path: Path) -> dict[str, Any]:
    """Give what the module hands over, with a uv that only pretends."""
    one = {
        **{"key": KEY, "name": "answer", "revision": "0123456789abcdef", "directory": "python"},
        **{"settings": {"b": "2", "a": "1"}, "environment": {"MAX_JOBS": "3"}},
        **{
            "python": sys.executable,
            "system": "debian 12",
            "cuda": "",
            "accelerator": "",
            "architecture": "x86_64",
        },
    }
    cluster_dir = str(tmp_path / "c")
    source = built_wheels.source(cluster_dir, KEY)
    source.parent.mkdir(parents=True)
    (tmp_path / "a.c").write_text("")
    with tarfile.open(source, "w:gz") as packed:
        packed.add(tmp_path / "a.c", "python/a.c")
    return {
        **{"cluster_dir": cluster_dir, "keys": [KEY], "builds": [one], "uv": str(tmp_path / "uv")},
        **{"find_links": ["/wheels"], "environment": {}},
    }


def pretend(wanted: dict[str, Any], script: str) -> None:
    uv = Path(wanted["uv"])
    uv.write_text(UV % script)
    uv.chmod(0o755)


def silent(*_: Any) -> None:
    """Take a report and forget it."""


def test_a_wheel_is_kept_with_its_digest_and_what_is_not_wanted_goes(
    wanted: dict[str, Any],
) -> None:
    folder = built_wheels.folder(wanted["cluster_dir"])
    (folder / "earlier").mkdir()
    (folder / "earlier.log").touch()
    (folder / f"{KEY[:12]}.build").mkdir()
    (folder / f"{KEY[:12]}.build/left").touch()
    pretend(wanted, 'mkdir "$2"; printf 123 > "$2/Answer-1.0-cp311-abi3-linux_x86_64.whl"')
    (record,) = wheel_build.build(wanted, silent)
    assert record["version"] == "1.0"
    assert record["sha256"] == hashlib.sha256(b"123").hexdigest()
    found = built_wheels.look(wanted["cluster_dir"], KEY)
    assert found is not None and Path(found["path"]).read_text() == "123"
    names = sorted(path.name for path in folder.iterdir())
    assert names == [KEY[:12], f"{KEY[:12]}.log"]
    said = (folder / f"{KEY[:12]}.log").read_text().splitlines()[0]
    assert "--find-links /wheels --config-setting a=1 --config-setting b=2" in said
    assert said.endswith("/source/python")
    # It is there: nothing is built again, not even without a source.
    pretend(wanted, "exit 1")
    assert wheel_build.build(wanted, silent)[0]["sha256"] == record["sha256"]


@pytest.mark.parametrize(
    "file", ["other-1.0-py3-none-any.whl", "answer_more-1.0-py3-none-any.whl", "answer.txt"]
)
def test_a_source_that_builds_something_else_is_refused(wanted: dict[str, Any], file: str) -> None:
    pretend(wanted, f'mkdir "$2"; touch "$2/{file}"')
    with pytest.raises(BuildError, match="builds something else") as error:
        wheel_build.build(wanted, silent)
    assert error.value.details["fix"] == "correct name or directory in engine_build"
    assert built_wheels.look(wanted["cluster_dir"], KEY) is None


def test_a_failed_build_says_what_the_compiler_said_first(wanted: dict[str, Any]) -> None:
    pretend(
        wanted,
        "echo 'a.c:3:1: warning: x'; echo 'a.c:7:9: error: unknown type'; "
        "echo 'ninja: build stopped'; echo \"error: command 'gcc' failed\"; exit 2",
    )
    with pytest.raises(BuildError, match="answer could not be built") as error:
        wheel_build.build(wanted, silent)
    assert error.value.details["found"] == "a.c:7:9: error: unknown type"
    assert error.value.details["where"].endswith(f"{KEY[:12]}.log")
    assert "engine_build" in error.value.details["fix"]


@pytest.mark.parametrize(
    "line",
    [
        "csrc/a.cu(12): error: identifier is undefined",
        "a.cpp:1:10: fatal error: Python.h: No such file or directory",
        "CMake Error at CMakeLists.txt:14 (find_package):",
        "error[E0425]: cannot find value",
        "a.o: undefined reference to `x'",
        "ld: cannot find -lcuda",
        "ModuleNotFoundError: No module named 'torch'",
    ],
)
def test_the_first_error_of_every_tool_is_known(line: str) -> None:
    text = f"checking for strerror: yes\n-Werror is on\nerrors: 0 so far\n  {line}\nerror: failed\n"
    assert wheel_build.first_error(text) == line
    assert wheel_build.first_error("all is well") == ""


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["[3/210] Building", "cc a.c", "note"], (3, 210, "steps")),
        (["[ 45%] Building CXX object"], (45, 100, "%")),
        (["running build_ext"], (None, None, "")),
    ],
)
def test_how_far_it_is_is_read_from_what_it_prints(lines: list[str], found: Any) -> None:
    assert wheel_build.steps(lines) == found


def test_a_compiler_that_is_silent_is_seen_to_work(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []
    log = tmp_path / "log"
    log.write_text("[1/2] nvcc a.cu\n")
    look = wheel_build.progress("vllm", log, lambda *report: told.append(report))
    work = "import time\nwhile time.process_time() < 1.2: pass\nprint(flush=True)\ninput()"
    # The compiler is a child of a child: uv starts a backend, and that starts ninja.
    argv = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, work]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        look(process.pid)
        process.communicate()
    assert told[-1][:3] == (1, 2, "steps")
    assert re.fullmatch(r"vllm: \[1/2\] nvcc a\.cu, [1-9] s of work", told[-1][3]), told[-1]
