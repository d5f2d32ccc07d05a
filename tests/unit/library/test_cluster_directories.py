"""The module makes real directories, as root and as a user without privileges."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Module = Callable[..., dict[str, Any]]
ME = pwd.getpwuid(os.getuid()).pw_name


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_what_is_missing_is_made_once(run_module: Module, tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("c", "c/logs", "c/models", "c/run")]
    args = {
        "directories": [str(path) for path in directories],
        "owner": ME,
        "administered": [str(tmp_path / "c/models")],
        "private": [str(tmp_path / "c/run")],
    }
    said = run_module("cluster_directories", args, [], check=True)
    assert said["changed"] and said["made"] == args["directories"]
    assert not (tmp_path / "c").exists()
    assert run_module("cluster_directories", args, []) | said == said
    assert [mode(path) for path in directories] == [0o750, 0o750, 0o750, 0o700]
    again = run_module("cluster_directories", args, [])
    assert not again["changed"] and again["made"] == []


def test_a_mode_that_was_changed_is_mended(run_module: Module, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    path.chmod(0o755)
    args = {"directories": [str(path)], "owner": ME, "private": [str(path)]}
    assert run_module("cluster_directories", args, [])["made"] == [str(path)]
    assert mode(path) == 0o700


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_directory_is_refused(run_module: Module, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "c"
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere").chmod(0o711)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text("mine")
    result = run_module("cluster_directories", {"directories": [str(path)], "owner": ME}, [])
    assert result["failed"] and result["where"] == str(path)
    assert result["found"] == f"{path} is not a directory"
    if kind == "link":
        assert mode(tmp_path / "elsewhere") == 0o711


def test_a_directory_below_a_file_cannot_be_made(run_module: Module, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("mine")
    path = f"{tmp_path}/c/logs"
    result = run_module("cluster_directories", {"directories": [path], "owner": ME}, [])
    assert result["failed"] and "Not a directory" in result["found"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_root_gives_directories_to_the_service(run_module: Module, nobodys: Path) -> None:
    os.chown(nobodys, 0, 0)
    nobodys.chmod(0o755)
    args = {
        "directories": [f"{nobodys}/c", f"{nobodys}/models"],
        "owner": "nobody",
        "administered": [f"{nobodys}/models"],
    }
    assert run_module("cluster_directories", args, [])["changed"]
    made = [(nobodys / name).stat() for name in ("c", "models")]
    service = pwd.getpwnam("nobody")
    # The service reads what is administered through its group, and cannot change it.
    assert [one.st_uid for one in made] == [service.pw_uid, 0]
    assert [one.st_gid for one in made] == [service.pw_gid] * 2
    assert mode(nobodys / "models") == 0o750
    assert not run_module("cluster_directories", args, [])["changed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_root_administers_nothing_that_the_service_could_replace(
    run_module: Module, nobodys: Path
) -> None:
    path = f"{nobodys}/models"
    args = {"directories": [path], "owner": "nobody", "administered": [path]}
    for check in (True, False):
        result = run_module("cluster_directories", args, [], check=check)
        assert result["failed"] and f"{nobodys} can be changed by nobody" in result["found"]
        assert not Path(path).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_what_is_roots_is_not_given_away_where_the_service_can_change_names(
    run_module: Module, nobodys: Path
) -> None:
    path = nobodys / "cache"
    path.mkdir(mode=0o700)
    args = {"directories": [str(path)], "owner": "nobody"}
    (path / "kept").touch()
    result = run_module("cluster_directories", args, [])
    assert result["failed"] and "belongs to root and is not empty" in result["found"]
    assert (path.stat().st_uid, mode(path)) == (0, 0o700)
    # An interrupted run leaves an empty one behind.
    (path / "kept").unlink()
    assert run_module("cluster_directories", args, [])["made"] == [str(path)]
    assert (path.stat().st_uid, mode(path)) == (65534, 0o750)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led astray")
def test_root_follows_links_that_only_root_can_have_made(
    run_module: Module, nobodys: Path, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "opt").symlink_to("disk")
    args = {"directories": [str(tmp_path / "opt/c")], "owner": "nobody"}
    assert run_module("cluster_directories", args, [])["changed"]
    assert (tmp_path / "disk/c").stat().st_uid == 65534
    (nobodys / "opt").symlink_to(tmp_path / "disk")
    args["directories"] = [str(nobodys / "opt/d")]
    result = run_module("cluster_directories", args, [])
    assert result["failed"] and "root does not follow it" in result["found"]
    assert not (tmp_path / "disk/d").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what is a stranger's")
def test_without_root_a_strangers_directory_is_refused(
    module_as_nobody: Module, nobodys: Path
) -> None:
    # As in /tmp, where anybody may have made the directory of our sockets before us.
    path = nobodys / "run"
    path.mkdir(mode=0o777)
    os.chown(path, 1234, 1234)
    args = {"directories": [str(path)], "owner": "nobody", "private": [str(path)]}
    result = module_as_nobody("cluster_directories", args)
    assert result["failed"] and result["found"] == f"{path} belongs to 1234, not to nobody"
    assert result["fix"].startswith("move what is there away, give it to nobody")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what is a stranger's")
@pytest.mark.parametrize("administered", [True, False])
def test_root_does_not_take_over_what_a_stranger_owns(
    run_module: Module, tmp_path: Path, administered: bool
) -> None:
    path, service = tmp_path / "models", pwd.getpwnam("nobody")
    path.mkdir(mode=0o755)
    os.chown(path, 1234, 1234)
    args = {"directories": [str(path)], "owner": "nobody"}
    args["administered"] = args["directories"] if administered else []
    result = run_module("cluster_directories", args, [])
    owner = ME if administered else "nobody"
    assert result["failed"] and result["found"] == f"{path} belongs to 1234, not to {owner}"
    assert (path.stat().st_uid, mode(path)) == (1234, 0o755)
    # What the service made itself may be administered from now on.
    os.chown(path, service.pw_uid, service.pw_gid)
    assert run_module("cluster_directories", args, [])["changed"]


def test_without_root_directories_are_made_and_not_given_away(
    module_as_nobody: Module, nobodys: Path
) -> None:
    owner = "nobody" if os.geteuid() == 0 else ME
    args = {"directories": [f"{nobodys}/a", f"{nobodys}/a/b"], "owner": owner}
    assert module_as_nobody("cluster_directories", args)["changed"]
    assert not module_as_nobody("cluster_directories", args)["changed"]
    result = module_as_nobody("cluster_directories", {**args, "owner": "root"})
    assert result["failed"] and "Operation not permitted" in result["found"]


def with_files(path: Path, owner: str = ME, **more: Any) -> dict[str, Any]:
    directories = [str(path), str(path / "node")]
    files = {str(path / "main.py"): "import node\n", str(path / "node/a.py"): "A = 'ü'\n"}
    wanted = {"directories": directories, "administered": directories, "owner": owner}
    return {**wanted, "files": files, **more}


def test_files_are_written_once_in_the_directories_that_are_made(
    run_module: Module, tmp_path: Path
) -> None:
    args = with_files(tmp_path / "program")
    said = run_module("cluster_directories", args, [], check=True)
    assert said["changed"] and said["written"] == list(args["files"])
    assert not (tmp_path / "program").exists()
    result = run_module("cluster_directories", {**args, "_ansible_diff": True}, [])
    assert result["written"] == list(args["files"])
    assert [(one["before"], one["after"]) for one in result["diff"]] == [
        ("", content) for content in args["files"].values()
    ]
    for name, content in args["files"].items():
        assert Path(name).read_text(encoding="utf-8") == content and mode(Path(name)) == 0o644
    left = sorted(path.name for path in (tmp_path / "program").rglob("*"))
    assert left == ["a.py", "main.py", "node"]  # no temporary file
    again = run_module("cluster_directories", args, [])
    assert not again["changed"] and again["written"] == []


@pytest.mark.parametrize("damage", ["content", "mode", "link"])
def test_a_file_that_differs_is_replaced(run_module: Module, tmp_path: Path, damage: str) -> None:
    args = with_files(tmp_path / "program")
    run_module("cluster_directories", args, [])
    file, elsewhere = tmp_path / "program/main.py", tmp_path / "elsewhere"
    if damage == "content":
        file.write_text("import os\n")
    elif damage == "mode":
        file.chmod(0o666)
    else:
        file.rename(elsewhere)
        file.symlink_to(elsewhere)
        elsewhere.write_text("import os\n")
    for check in (True, False):
        result = run_module("cluster_directories", {**args, "_ansible_diff": True}, [], check=check)
        assert result["changed"] and result["written"] == [str(file)]
        before = {"content": ["import os\n"], "mode": [], "link": [""]}[damage]
        assert [one["before"] for one in result["diff"]] == before
    assert not file.is_symlink() and file.read_text() == "import node\n" and mode(file) == 0o644
    assert not elsewhere.exists() or elsewhere.read_text() == "import os\n"


def test_a_file_that_cannot_be_written_is_named(run_module: Module, tmp_path: Path) -> None:
    args = with_files(tmp_path / "program", files={f"{tmp_path}/other/a": "a"})
    result = run_module("cluster_directories", args, [])
    assert result["failed"] and result["where"] == f"{tmp_path}/other/a"
    assert "No such file" in result["found"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led astray")
def test_root_writes_no_file_where_the_service_could_replace_its_directory(
    run_module: Module, nobodys: Path
) -> None:
    place = nobodys / "program"
    place.mkdir()
    args = {"directories": [], "owner": "nobody", "files": {str(place / "main.py"): "pass\n"}}
    for check in (True, False):
        result = run_module("cluster_directories", args, [], check=check)
        assert result["failed"] and f"{nobodys} can be changed by nobody" in result["found"]
    assert not list(place.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file away")
def test_root_takes_a_file_of_the_service_for_its_own(run_module: Module, tmp_path: Path) -> None:
    args = with_files(tmp_path / "program")
    run_module("cluster_directories", args, [])
    file = tmp_path / "program/main.py"
    shutil.chown(file, "nobody")
    assert run_module("cluster_directories", args, [])["written"] == [str(file)]
    assert file.stat().st_uid == 0
