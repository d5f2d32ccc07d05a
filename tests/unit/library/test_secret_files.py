"""The module writes real secrets, as root and as a user without privileges."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Module = Callable[..., dict[str, Any]]
ME = pwd.getpwuid(os.getuid()).pw_name
SECRETS = {"api_key": "k-123456", "ray_token": "t-abcdef"}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def arguments(directory: Path, **more: Any) -> dict[str, Any]:
    return {"directory": str(directory), "owner": ME, "contents": SECRETS, **more}


def test_secrets_are_written_once_and_only_their_owner_reads_them(
    run_module: Module, tmp_path: Path
) -> None:
    directory = tmp_path / "secrets"
    assert run_module("secret_files", arguments(directory), [], check=True)["changed"]
    assert not directory.exists()
    result = run_module("secret_files", arguments(directory), [])
    assert result["changed"] and result["written"] == ["api_key", "ray_token"]
    assert mode(directory) == 0o750
    for name, content in SECRETS.items():
        assert (directory / name).read_text() == content and mode(directory / name) == 0o600
    assert sorted(os.listdir(directory)) == sorted(SECRETS)  # no temporary file is left
    assert run_module("secret_files", arguments(directory), [])["written"] == []


def test_no_result_holds_a_secret(run_module: Module, tmp_path: Path) -> None:
    result = run_module("secret_files", arguments(tmp_path / "secrets"), [])
    assert not any(secret in str(result) for secret in SECRETS.values())


def test_what_is_not_wanted_any_more_goes(run_module: Module, tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    run_module("secret_files", arguments(directory), [])
    later = arguments(directory, contents={"api_key": "k-123456"}, absent=["ray_token", "other"])
    told = run_module("secret_files", later, [], check=True)
    assert told["changed"] and told["removed"] == ["ray_token"]
    assert (directory / "ray_token").exists()
    assert run_module("secret_files", later, [])["removed"] == ["ray_token"]
    assert os.listdir(directory) == ["api_key"]
    assert not run_module("secret_files", later, [])["changed"]


@pytest.mark.parametrize("damage", ["content", "mode", "link"])
def test_a_secret_that_differs_is_replaced(run_module: Module, tmp_path: Path, damage: str) -> None:
    directory, elsewhere = tmp_path / "secrets", tmp_path / "elsewhere"
    run_module("secret_files", arguments(directory), [])
    key = directory / "api_key"
    if damage == "content":
        key.write_text("k-stolen")
    elif damage == "mode":
        key.chmod(0o644)
    else:
        key.rename(elsewhere)
        elsewhere.chmod(0o600)
        key.symlink_to(elsewhere)
    result = run_module("secret_files", arguments(directory), [])
    assert result["written"] == ["api_key"]
    assert not key.is_symlink() and key.read_text() == "k-123456" and mode(key) == 0o600
    if damage == "link":
        assert elsewhere.read_text() == "k-123456"  # what the link named was not written


def test_a_directory_that_is_there_keeps_its_mode(run_module: Module, tmp_path: Path) -> None:
    # Role host opens it to the group, role ray puts secrets in: neither may undo the other.
    directory = tmp_path / "engines"
    made = {"directories": [str(directory)], "owner": ME}
    run_module("cluster_directories", made, [])
    assert run_module("secret_files", arguments(directory), [])["changed"]
    assert not run_module("cluster_directories", made, [])["changed"]


def test_an_unknown_owner_is_refused_unless_he_would_be_made(
    run_module: Module, tmp_path: Path
) -> None:
    args = arguments(tmp_path / "secrets", owner="no-such-user")
    result = run_module("secret_files", args, [])
    assert result["failed"] and result["msg"] == "there is no user no-such-user on this host"
    assert run_module("secret_files", args, [], check=True)["written"] == sorted(SECRETS)
    assert not (tmp_path / "secrets").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_writes_what_only_the_service_reads(
    run_module: Module, as_nobody: Callable[..., Any], nobodys: Path
) -> None:
    os.chown(nobodys, 0, 0)
    nobodys.chmod(0o755)
    run_module("secret_files", arguments(nobodys / "secrets", owner="nobody"), [])
    assert (nobodys / "secrets").stat().st_uid == 0  # no link can be put in the place of a key
    key = nobodys / "secrets/api_key"
    assert (key.stat().st_uid, mode(key)) == (pwd.getpwnam("nobody").pw_uid, 0o600)
    assert as_nobody(key.read_text) == "k-123456"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what is a stranger's")
def test_without_root_a_failure_is_told_and_leaves_no_secret_behind(
    module_as_nobody: Module, nobodys: Path
) -> None:
    directory = nobodys / "secrets"
    # It cannot give the file away, and must not leave it lying about.
    result = module_as_nobody("secret_files", arguments(directory, owner="root"))
    assert result["failed"] and "Operation not permitted" in result["found"]
    assert not directory.exists() or os.listdir(directory) == []
    directory.mkdir(exist_ok=True)
    os.chown(directory, 0, 0)
    directory.chmod(0o700)
    result = module_as_nobody("secret_files", arguments(directory, owner="nobody"))
    assert result["failed"] and result["where"] == str(directory)
    assert "Permission denied" in result["found"] and result["fix"]
