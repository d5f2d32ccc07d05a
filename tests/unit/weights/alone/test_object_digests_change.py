"""Objects that change after their digests were found are refused, and nothing unproven is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.emulators.object_storage import ObjectStorage
from vllm_ansible.node.weights import hub_manifest
from vllm_ansible.node.weights.store.hashing import Beginning
from vllm_ansible.node.weights.store.manifest import File

from .objects import BUCKET, PREFIX, SHARDS, STORED


@pytest.fixture
def ask(stored: dict[str, Any], run_module: Callable[..., dict[str, Any]]) -> Any:
    """Return what the module of the foreground says."""
    taken = ("models_dir", "python", "program", "environment", "credentials_path")

    def run(check: bool = False) -> dict[str, Any]:
        arguments = {name: stored[name] for name in taken}
        engines = [{"name": "chat", "model": STORED.name}]
        return run_module("hf_snapshot", {"engines": engines, **arguments}, [], check=check)

    return run


def test_an_object_that_came_meanwhile_is_refused_and_not_read(
    stored: dict[str, Any], storage: ObjectStorage, ask: Any
) -> None:
    hub_manifest.ask(STORED, stored, reads=True)
    storage.put(BUCKET, f"{PREFIX}/{SHARDS[0]}", b"another")
    storage.put(BUCKET, f"{PREFIX}/new.safetensors", b"new")
    storage.sent.clear()
    refused = ask()
    assert refused["failed"]
    assert refused["msg"] == f"objects of {STORED.name} changed after their digests were found"
    assert refused["found"] == f"2 others: {SHARDS[0]}, new.safetensors"
    assert "run the same command again" in refused["fix"]
    assert not any(storage.sent[f"{PREFIX}/{name}"] for name in (*SHARDS, "new.safetensors"))
    assert not ask(check=True).get("failed")
    hub_manifest.ask(STORED, stored, reads=True)
    assert not ask().get("failed")


def test_content_that_no_digest_proves_is_never_right() -> None:
    beginning = Beginning(File("config.json", 2))
    beginning.after(b"{}")
    beginning.take(b"{}")
    assert not beginning.right()
