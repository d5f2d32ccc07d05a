"""A small image under the real podman of this machine, or under docker where it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.engine_image import write_root
from vllm_ansible.environment.request import read_package
from vllm_ansible.node.image.tool import Tool, settings

ROOT = Path(__file__).parents[4]
# A daemon of docker is rarely where tests run; both are tried by hand, one after the other.
KIND = os.environ.get("VLLM_ANSIBLE_TEST_CONTAINER_TOOL", "podman")
SAVE = ["save", "--format", "docker-archive"] if KIND == "podman" else ["save"]


def containers_tool(*arguments: str, check: bool = True) -> str:
    """Return what podman or docker prints."""
    done = subprocess.run([KIND, *arguments], capture_output=True, text=True, check=check)
    return done.stdout.strip()


@pytest.fixture(scope="session")
def tool() -> Tool:
    """Return what runs containers on this machine, with root."""
    path = shutil.which(KIND)
    if path is None or os.geteuid() != 0:
        pytest.skip(f"images are tried with {KIND} and root")
    return Tool(KIND, path, dict(os.environ))


@pytest.fixture(scope="session")
def archive(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the tar of the small image, as `docker save` writes it; it is loaded nowhere."""
    folder = tmp_path_factory.mktemp("image")
    name = f"localhost/vllm-ansible-test:{uuid.uuid4().hex[:12]}"
    write_root(folder / "root.tar", {"etc/test": name})
    containers_tool("import", str(folder / "root.tar"), name)
    containers_tool(*SAVE, "--output", str(folder / "image.tar"), name)
    containers_tool("rmi", name)
    yield folder / "image.tar"
    containers_tool("rmi", "--force", name, check=False)


@pytest.fixture
def wanted(tool: Tool, archive: Path, tmp_path: Path) -> dict[str, Any]:
    """Return what a host is asked to bring, in a directory that every user may enter."""
    own = [read_package(ROOT / "packages/vllm_guard")]
    tmp_path.chmod(0o755)
    return {
        "name": "",
        "file": str(archive),
        "sha256": sha256(archive.read_bytes()).hexdigest(),
        "directory": str(tmp_path / "environments" / "0123456789ab"),
        "digest": "0123456789abcdef",
        "packages": [],
        "own": own,
        "settings": {
            **settings(tool, "nobody"),
            "mounts": [],
            "privileged": False,
            "ipc": "private",
        },
        "accelerator": "cpu",
        "writable": [str(tmp_path)],
        "sources": [],
    }


Report = Callable[..., None]


@pytest.fixture
def told() -> list[str]:
    """Return what was reported, in words."""
    return []


@pytest.fixture
def report(told: list[str]) -> Report:
    """Return what collects reports."""
    return lambda done, total, unit, text: told.append(text)


def containers(name: str) -> list[str]:
    """Return the containers of that name, running or not."""
    return containers_tool("ps", "--all", "--quiet", "--filter", f"name={name}").split()
