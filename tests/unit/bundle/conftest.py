"""A project of a few lines, wheels of a few bytes, and the bundle made of them."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from argparse import Namespace
from pathlib import Path

import pytest

from vllm_ansible.bundle import command

HOSTS = "gpu: {hosts: {one: {ansible_connection: local, accelerator: cpu, engines: [%s]}}}\n"
LOCKS = {"uv": "one", "controller": "two", "tools": "three", "engine-cpu": "four"}


def wheel(place: Path, name: str, tag: str = "py3-none-any", version: str = "1.0") -> str:
    """Write a wheel of one line and return its SHA-256."""
    path = place / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        folder = f"{name}-{version}.dist-info"
        archive.writestr(
            f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{folder}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
        )
        archive.writestr(f"{folder}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Project:
    """A repository with four locks and one inventory, and an index of one directory."""

    def __init__(self, directory: Path) -> None:
        self.lie(directory)
        for folder in (self.index, self.root / "requirements", self.root / "inventories/mine"):
            folder.mkdir(parents=True)
        for lock, name in LOCKS.items():
            digest = wheel(self.index, name)
            (self.root / f"requirements/{lock}.txt").write_text(
                f"{name}==1.0 --hash=sha256:{digest}\n"
            )
        (self.root / "ansible.cfg").write_text("[defaults]\n")
        self.engine("{name: chat, model: 'random:llama'}")

    def lie(self, directory: Path) -> None:
        self.directory = directory
        self.root, self.index = directory / "p", directory / "index"

    def engine(self, text: str) -> None:
        """Say what the inventory serves."""
        (self.root / "inventories/mine/hosts.yml").write_text(HOSTS % text)

    def lock(self, name: str, text: str) -> None:
        (self.root / f"requirements/{name}.txt").write_text(text)

    def make(self, name: str = "mine.tar", **options: object) -> list[Path]:
        """Make the bundle as the verb does."""
        given = {"inventory": "mine", "to": str(self.directory / name), "part_size": "0"}
        given |= {"cache": str(self.directory / "cache"), "architecture": "x86_64"}
        wanted = Namespace(**{**given, "python": ["3.11"], "lock": None, "key": None, **options})
        return command.make(wanted, command.wish_of(wanted, self.root))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Make a project and its bundle once; what fetches and lists takes seconds each time."""
    project = Project(tmp_path_factory.mktemp("made"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(project.index))
        project.make()
    return project


@pytest.fixture
def project(made: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Give a copy, with its wheels fetched and its bundle made."""
    copy = Project.__new__(Project)
    copy.lie(tmp_path / "project")
    shutil.copytree(made.directory, copy.directory)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(copy.index))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return copy
