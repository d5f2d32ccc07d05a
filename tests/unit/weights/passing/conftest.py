"""Hosts of a cluster, and the model they complete together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emulators.hub import Hub, Repository
from vllm_ansible.node.weights.store import receiver, sender
from vllm_ansible.node.weights.store.manifest import Manifest, parse

from .model import CHANCE, MODEL, SHARDS, SLUG
from .nodes import Nodes


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "JOIN_SECONDS", 1.0)
    monkeypatch.setattr(receiver, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(sender, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(receiver, "SILENCE_SECONDS", 3.0)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tree")
    for name, size in SHARDS.items():
        (made / name).write_bytes(CHANCE.randbytes(size))
    (made / "config.json").write_text("{}")
    (made / "empty.txt").write_text("")
    return made


@pytest.fixture
def hub(tree: Path) -> Iterator[Hub]:
    with Hub({MODEL: Repository(tree)}) as served:
        yield served


@pytest.fixture
def manifest(tree: Path, hub: Hub) -> Manifest:
    files = []
    for path in sorted(tree.iterdir()):
        content = path.read_bytes()
        large = path.suffix == ".safetensors"
        git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        files.append(
            {
                "name": path.name,
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest() if large else None,
                "git": git.hexdigest(),
            }
        )
    commit = hub.repositories[MODEL].commit("main")
    return parse(SLUG, MODEL, {"revision": commit, "files": files})


@pytest.fixture
def make_nodes(tmp_path: Path, manifest: Manifest, hub: Hub) -> Iterator[Callable[..., Nodes]]:
    made: list[Nodes] = []

    def make(*names: str) -> Nodes:
        made.append(Nodes(names, tmp_path, manifest, hub.url))
        return made[-1]

    yield make
    for nodes in made:
        nodes.close()
