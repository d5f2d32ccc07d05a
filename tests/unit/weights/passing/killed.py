"""Complete a model until so many bytes of it are there, and die as by SIGKILL.

Run as `python -m tests.unit.weights.passing.killed REQUEST.json`; a whole model ends it well.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from vllm_ansible.node.weights.store.gathering import Gathering, Part
from vllm_ansible.node.weights.store.hub import Hub
from vllm_ansible.node.weights.store.incoming import Incoming
from vllm_ansible.node.weights.store.manifest import parse
from vllm_ansible.node.weights.store.receiver import Peer
from vllm_ansible.node.weights.store.shelf import Shelf

from ..program import PROGRAM
from .nodes import LOOPBACK, silent


class Mortal(Gathering):
    """One that dies at a number of bytes."""

    dies_at = 0

    def _arrived(self, incoming: Incoming) -> None:
        super()._arrived(incoming)
        if sum(self._bytes.values()) >= self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Take part until the end."""
    asked: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    manifest = parse(asked["slug"], asked["model"], asked["manifest"])
    peers = [Peer("peer", LOOPBACK, port) for port in asked["ports"]]
    part = Part(
        manifest,
        Shelf(asked["models_dir"], manifest.slug),
        {file.name: peers for file in manifest.files},
    )
    variables = {**os.environ, "HF_ENDPOINT": asked["hub"], "HF_HUB_DISABLE_XET": "1"}
    hub = None if peers else Hub(sys.executable, PROGRAM, variables, asked["streams"], 5.0)
    gathering = Mortal([part], bytes.fromhex(asked["key"]), LOOPBACK, hub, asked["streams"])
    gathering.dies_at = asked["dies_at"]
    gathering.run(silent)


main()
