"""Hosts of a cluster as directories of this machine, each with the store's own programs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_ansible.node.cluster.key import derived
from vllm_ansible.node.weights.store.gathering import Gathering, Part
from vllm_ansible.node.weights.store.hub import Hub
from vllm_ansible.node.weights.store.manifest import Manifest
from vllm_ansible.node.weights.store.receiver import Peer, way_of
from vllm_ansible.node.weights.store.sender import Sender
from vllm_ansible.node.weights.store.shelf import Shelf
from vllm_ansible.node.weights.store.signing import DOMAIN
from vllm_ansible.weights.spread import upstream

from ..program import PROGRAM

LOOPBACK = "127.0.0.1"


def silent(*_: Any) -> None:
    """Report to nobody."""


class Node:
    """One host: its shelf, and what passes its files on."""

    def __init__(self, name: str, directory: Path, manifest: Manifest, key_file: Path) -> None:
        self.name, self.manifest = name, manifest
        self.shelf = Shelf(str(directory / name), manifest.slug)
        self.key = derived(str(key_file), DOMAIN)
        self.sender = Sender((LOOPBACK, 0), self.key, {manifest.slug: (self.shelf, manifest)})
        self.peer = Peer(name, LOOPBACK, self.sender.server_address[1])
        threading.Thread(target=self.sender.serve_forever, args=(0.02,), daemon=True).start()
        self.gathering: Gathering | None = None
        self.error: Exception | None = None

    def has(self) -> set[str]:
        stock = self.shelf.stock()
        return {file.name for file in self.manifest.files if self.shelf.ready(file, stock)}

    def content(self, name: str) -> bytes:
        return Path(self.shelf.final, name).read_bytes()

    def leave(self) -> None:
        """Pass nothing on any more."""
        self.sender.shutdown()
        self.sender.server_close()


class Nodes:
    """Hosts that complete one model together."""

    def __init__(
        self, names: Sequence[str], directory: Path, manifest: Manifest, hub_url: str
    ) -> None:
        key_file = directory / "key"
        key_file.write_text("k" * 32)
        self.all = {name: Node(name, directory, manifest, key_file) for name in names}
        self.environment = {**os.environ, "HF_ENDPOINT": hub_url, "HF_HUB_DISABLE_XET": "1"}
        self.hub = Hub(sys.executable, PROGRAM, self.environment, 2, 5.0)
        self.peers = {name: node.peer for name, node in self.all.items()}

    def gather(
        self, only: Sequence[str] = (), outside: Sequence[str] = (), **options: Any
    ) -> Mapping[str, Node]:
        """Complete the model on all hosts, or those named; their errors stay with them.

        among: the hosts that each is told of, all unless given.
        """
        names = list(options.get("among", self.all))
        has = {name: node.has() for name, node in self.all.items()}
        workers = []
        for name in only or names:
            node = self.all[name]
            files = [file.name for file in node.manifest.files]
            ways = upstream(name, files, names, has, outside or names)
            peers = {one: way_of(way, self.peers) for one, way in ways.items()}
            node.gathering = Gathering(
                [Part(node.manifest, node.shelf, peers)],
                node.key,
                LOOPBACK,
                self.hub if not outside or name in outside else None,
                options.get("streams", 4),
                options.get("rehash", False),
            )
            workers.append(threading.Thread(target=self._run, args=(node,)))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(240)
        return self.all

    def _run(self, node: Node) -> None:
        node.error = None
        try:
            assert node.gathering
            node.gathering.run(silent)
        except Exception as error:
            node.error = error

    def close(self) -> None:
        for node in self.all.values():
            node.leave()
