"""The model of these tests, and how to see that a host has it."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.emulators.hub import Hub
from vllm_ansible.node.weights.store.manifest import PIECE

from .nodes import Nodes

MODEL, SLUG = "org/tiny", "org--tiny"
SHARDS = {f"model-{number:05}-of-00004.safetensors": 3 * PIECE + 17 * number for number in range(4)}
CHANCE = random.Random(5)  # noqa: S311  content, no secret


def whole_on(nodes: Nodes, tree: Path, *names: str) -> None:
    for name in names or nodes.all:
        node = nodes.all[name]
        assert node.error is None, node.error
        for path in tree.iterdir():
            assert node.content(path.name) == path.read_bytes(), (name, path.name)
        assert not os.path.exists(node.shelf.partial)


def sent(hub: Hub) -> dict[str, int]:
    return {name: hub.sent[name] for name in SHARDS}
