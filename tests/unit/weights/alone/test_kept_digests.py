"""Digests that were found by reading are known to every host that has the model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.object_storage import ObjectStorage
from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import hub_manifest

from ..passing.nodes import silent
from .objects import BUCKET, PREFIX, SHARDS, STORED, brought


def kept(models_dir: Any) -> Path:
    return Path(models_dir) / ".store" / STORED.slug() / "digests.json"


def test_another_host_that_has_the_model_asks_and_reads_nothing(
    stored: dict[str, Any], storage: ObjectStorage, tmp_path: Path
) -> None:
    brought(stored)
    first = json.loads(kept(stored["models_dir"]).read_text())
    other = {**stored, "models_dir": str(tmp_path / "other")}
    weights.fetch_all([STORED], other, silent)
    assert json.loads(kept(other["models_dir"]).read_text()) == first
    storage.sent.clear()
    again = hub_manifest.ask(STORED, other, reads=True)
    assert again == stored["store"]["manifests"][STORED.slug()]
    assert not any(storage.sent[f"{PREFIX}/{name}"] for name in SHARDS)


def test_what_was_recorded_is_not_kept_as_if_it_had_been_read(
    stored: dict[str, Any], storage: ObjectStorage, tree: Path
) -> None:
    text = "".join(
        f"{hashlib.sha256((tree / name).read_bytes()).hexdigest()}  {name}\n" for name in SHARDS
    )
    storage.put(BUCKET, f"{PREFIX}/SHA256SUMS", text.encode())
    brought(stored)
    assert set(json.loads(kept(stored["models_dir"]).read_text())).isdisjoint(SHARDS)


@pytest.mark.parametrize("damaged", ["", "[]", '{"config.json": 5}'])
def test_what_was_damaged_is_replaced(
    stored: dict[str, Any], storage: ObjectStorage, tmp_path: Path, damaged: str
) -> None:
    brought(stored)
    other = {**stored, "models_dir": str(tmp_path / "other")}
    file = kept(other["models_dir"])
    file.parent.mkdir(parents=True)
    file.write_text(damaged)
    weights.fetch_all([STORED], other, silent)
    assert json.loads(file.read_text()) == json.loads(kept(stored["models_dir"]).read_text())
    assert file.stat().st_mode & 0o777 == 0o644
