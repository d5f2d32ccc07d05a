from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ansible.node import launcher
from vllm_ansible.node.system import host

SOURCE = Path(__file__).parents[4] / "src"


def test_os_release_is_read_without_its_quotes(tmp_path: Path) -> None:
    path = tmp_path / "os-release"
    path.write_text("# a comment\nID=debian\nVERSION_ID=\"12\"\nHOME_URL='https://d.org/?a=b'\n\n")
    assert host.os_release(str(path)) == {
        "ID": "debian",
        "VERSION_ID": "12",
        "HOME_URL": "https://d.org/?a=b",
    }


def test_memory_is_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:  24 kB\nMemFree:  1 kB\nMemAvailable:  20 kB\nHugePages_Total: 0\n")
    assert host.memory_bytes(str(path)) == 24576


def test_space_is_measured_where_a_directory_will_be(tmp_path: Path) -> None:
    assert host.existing_parent(f"{tmp_path}/a/b") == str(tmp_path)
    assert host.existing_parent(str(tmp_path)) == str(tmp_path)
    assert host.existing_parent("none/at/all") == "."


def test_space_below_a_closed_directory_is_measured_at_it(
    nobodys: Path, as_nobody: Callable[..., Any]
) -> None:
    closed = nobodys / "closed"
    closed.mkdir(mode=0o000)
    assert as_nobody(lambda: host.existing_parent(f"{closed}/a/b")) == str(closed)


def test_space_is_measured_where_the_cluster_will_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def disk_usage(path: str) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(free=len(asked))

    monkeypatch.setattr(host.shutil, "disk_usage", disk_usage)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert host.disk_free("") == {"root": 1, "none": 2}
    # Nothing was made below the home yet: its own file system will hold it, not the one of /.
    assert asked[0] in ("/opt/vllm-ansible", "/opt", "/") and asked[1] == str(tmp_path)
    host.disk_free(f"{tmp_path}/data/c")
    assert asked[2:] == [str(tmp_path)] * 2


def test_libraries_that_the_loader_does_not_find_are_named() -> None:
    assert host.missing_libraries(["c", "nosuchlibrary"]) == ["nosuchlibrary"]


@pytest.mark.parametrize(("script", "answer"), [("exit 0", True), ("exit 1", False), (None, False)])
def test_sudo_counts_only_without_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, answer: bool
) -> None:
    if script is not None:
        sudo = tmp_path / "sudo"
        sudo.write_text(f'#!/bin/sh\n[ "$*" = "-n true" ] || exit 9\n{script}\n')
        sudo.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.has_sudo() is answer


def test_a_look_tells_what_is_so_on_this_machine(node_python: str) -> None:
    program = (
        "import json; from vllm_ansible.node.system import host;"
        "print(json.dumps(host.look('/x', [])))"
    )
    done = subprocess.run(
        [node_python, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["uid"] == os.getuid()
    assert found["boot_id"] == launcher.boot_id()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert "127.0.0.1" in [one["address"] for one in found["addresses"]]
    assert found["memory_bytes"] > 0
    assert found["disk_free"]["root"] == found["disk_free"]["none"] > 0
    assert found["missing_libraries"] == []


def test_the_module_needs_no_privileges(
    module_as_nobody: Callable[..., dict[str, Any]], run_module: Callable[..., dict[str, Any]]
) -> None:
    args = {"disk_path": "/", "libraries": ["c", "nosuchlibrary"]}
    result = run_module("host_info", args, [], check=True)
    assert not result["changed"]
    ours = result["host"]
    theirs = module_as_nobody("host_info", args)["host"]
    for key in ("boot_id", "addresses", "accelerators", "memory_bytes", "cores", "pid1"):
        assert theirs[key] == ours[key], key
    assert theirs["missing_libraries"] == ["nosuchlibrary"]
    assert ours["missing_libraries"] == ["nosuchlibrary"]
    if os.geteuid() == 0:
        assert (theirs["uid"], theirs["user"]) == (65534, "nobody")


def test_the_toolkit_of_cuda_is_told_by_its_file_or_by_its_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.cuda_toolkit(str(tmp_path)) == ""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n")
    nvcc.chmod(0o755)
    assert host.cuda_toolkit(str(tmp_path)) == "12.8"
    version = {"cuda": {"name": "CUDA SDK", "version": "13.0.88"}}
    (tmp_path / "version.json").write_text(json.dumps(version))
    assert host.cuda_toolkit(str(tmp_path)) == "13.0"
