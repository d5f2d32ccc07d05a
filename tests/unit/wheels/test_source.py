"""One commit is fetched, whatever repository holds it, and a failure says what git said."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from vllm_ansible.problem import PlanError
from vllm_ansible.wheels.source import archive

from .project import emulator

ROOT = Path(__file__).parents[3]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


def commit(repository: Path, text: str) -> str:
    found: str = emulator().commit(repository, {"a/b.txt": text})
    return found


def content(path: Path) -> str:
    with tarfile.open(path) as packed:
        handle = packed.extractfile("a/b.txt")
        assert handle is not None
        return handle.read().decode()


@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_an_earlier_commit_is_fetched_from_a_path_and_from_an_address(
    repository: Path, tmp_path: Path, address: str
) -> None:
    first, _ = commit(repository, "first"), commit(repository, "second")
    made = archive("x", address.format(repository), first, tmp_path / "sources")
    assert content(made) == "first"
    assert [path.name for path in made.parent.iterdir()] == [f"x-{first}.tar.gz"]


def test_what_was_fetched_is_not_asked_for_again(repository: Path, tmp_path: Path) -> None:
    revision = commit(repository, "first")
    made = archive("x", str(repository), revision, tmp_path / "sources")
    assert archive("x", "/gone", revision, tmp_path / "sources") == made


def test_a_server_that_gives_no_commit_by_its_name_is_asked_for_all(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = commit(repository, "first"), commit(repository, "second")
    # The protocol that old servers speak.
    for name, value in (("COUNT", "1"), ("KEY_0", "protocol.version"), ("VALUE_0", "0")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    plain = subprocess.run(
        ["git", "-C", repository, "fetch", "--depth=1", f"file://{repository}", first],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "unadvertised" in plain.stderr
    assert content(archive("x", f"file://{repository}", first, tmp_path / "sources")) == "first"


def test_the_scenarios_of_molecule_name_the_commit_that_their_repository_has(
    repository: Path,
) -> None:
    made = emulator().commit(repository, emulator().project())
    shared = yaml.safe_load((ROOT / ".config/molecule/config.yml").read_text())
    variables = shared["provisioner"]["inventory"]["group_vars"]["gpu"]
    assert [build["revision"] for build in variables["engine_build"]] == [made]


def test_a_commit_or_a_repository_that_is_not_there_is_told(
    repository: Path, tmp_path: Path
) -> None:
    commit(repository, "first")
    for source, said in ((str(repository), "not our ref"), ("/gone", "/gone")):
        with pytest.raises(PlanError, match="cannot be fetched") as error:
            archive("x", source, "f" * 40, tmp_path / "sources")
        (problem,) = error.value.problems
        assert said in problem.found and problem.fix
    assert list((tmp_path / "sources").iterdir()) == []
