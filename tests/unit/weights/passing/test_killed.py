"""A run that is killed loses nothing that was proven, and the next one fetches nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.emulators.hub import CHUNK, Hub
from vllm_ansible.node.weights.store.incoming import Incoming
from vllm_ansible.node.weights.store.manifest import PIECE

from .model import MODEL, SLUG, whole_on
from .nodes import Node, Nodes

ROOT = Path(__file__).parents[4]
STREAMS = 2


def killed(node: Node, directory: Path, at: int, ports: list[int], hub: Hub) -> None:
    """Let a host complete the model in a process of its own, which dies when so many bytes came."""
    files = [asdict(one) for one in node.manifest.files]
    request = {
        "slug": SLUG,
        "model": MODEL,
        "manifest": {"revision": node.manifest.revision, "files": files},
        "models_dir": os.path.dirname(node.shelf.final),
        "key": node.key.hex(),
        "ports": ports,
        "hub": hub.url,
        "streams": STREAMS,
        "dies_at": at,
    }
    path = directory / "request.json"
    path.write_text(json.dumps(request))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit.weights.passing.killed", path],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
        timeout=300,
    )
    assert ended.returncode == -signal.SIGKILL


def proven(node: Node) -> int:
    """Return how many pieces a host has proofs of."""
    return sum(node.shelf.proofs(file).count() for file in node.manifest.files)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_of_what_a_peer_sent_nothing_is_sent_again(
    make_nodes: Callable[..., Nodes],
    hub: Hub,
    tree: Path,
    tmp_path: Path,
    share: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = make_nodes("a", "b")
    nodes.gather(only=["a"], among=["a"])
    manifest, b = nodes.all["b"].manifest, nodes.all["b"]
    at = int(share * manifest.bytes)
    killed(b, tmp_path, at, [nodes.all["a"].peer.port], hub)
    before = proven(b)
    assert before * PIECE >= at - STREAMS * PIECE, "what had come was not remembered"
    taken = []
    take = Incoming.take

    def counted(self: Incoming, piece: memoryview, digest: bytes) -> None:
        take(self, piece, digest)
        taken.append(self.file.name)

    monkeypatch.setattr(Incoming, "take", counted)
    nodes.gather(only=["b"])
    whole_on(nodes, tree)
    assert len(taken) == sum(file.pieces for file in manifest.files) - before


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_of_what_the_hub_sent_only_what_was_on_its_way_is_sent_again(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path, tmp_path: Path, share: float
) -> None:
    b = make_nodes("b").all["b"]
    # Slow enough that a program which waits for a processor still takes what was sent.
    hub.throttle(b.manifest.bytes / 6)
    killed(b, tmp_path, int(share * b.manifest.bytes), [], hub)
    hub.throttle(0)
    nodes = make_nodes("b")
    nodes.gather()
    whole_on(nodes, tree)
    # Of each file that was open: what the program had not written, and what was under way.
    assert sum(hub.sent.values()) - b.manifest.bytes <= STREAMS * ((1 << 20) + 4 * CHUNK)
