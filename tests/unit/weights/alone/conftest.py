"""One host alone, and a hub with a model of two shards."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.hub import Hub, Repository
from tests.emulators.object_storage import ObjectStorage
from vllm_ansible.node.weights import hub_manifest

from ..passing.nodes import LOOPBACK
from ..program import PROGRAM
from .model import MODEL, shard
from .objects import BUCKET, PREFIX, SECRET


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    made.mkdir()
    (made / "config.json").write_text("{}")
    names = {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}
    for tensor, name in names.items():
        (made / name).write_bytes(shard(tensor))
    (made / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (made / "1_Pooling").mkdir()
    (made / "1_Pooling" / "config.json").write_text("{}")
    (made / "pytorch_model.bin").write_bytes(b"the same in another format")
    return made


@pytest.fixture
def hub(tree: Path) -> Iterator[Hub]:
    with Hub({"org/tiny": Repository(tree)}) as served:
        yield served


@pytest.fixture
def wanted(tmp_path: Path, hub: Hub) -> dict[str, Any]:
    """Give what the module hands over for a host that is alone."""
    key = tmp_path / "key"
    key.write_text("k" * 32)
    given: dict[str, Any] = {
        "models_dir": str(tmp_path / "models"),
        "python": sys.executable,
        "environment": {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"},
        "program": PROGRAM,
        "scripts": {"hub": PROGRAM},
        "include": [],
        "exclude": [],
    }
    given["store"] = {
        "manifests": {MODEL.slug(): hub_manifest.ask(MODEL, given)},
        "upstream": {},
        "addresses": {},
        "address": LOOPBACK,
        "port": 1,
        "outside": True,
        "key_file": str(key),
        "python": sys.executable,
        "hub_workers": 2,
        "streams": 2,
        "stall_seconds": 5,
        "rehash": False,
    }
    return given


@pytest.fixture
def storage(tree: Path) -> Iterator[ObjectStorage]:
    with ObjectStorage({"AKIAGOOD"}) as served:
        served.bucket(BUCKET)
        for path in filter(Path.is_file, tree.rglob("*")):
            served.put(BUCKET, f"{PREFIX}/{path.relative_to(tree)}", path.read_bytes())
        yield served


@pytest.fixture
def stored(wanted: dict[str, Any], storage: ObjectStorage, tmp_path: Path) -> dict[str, Any]:
    """Give what the module hands over, with a file of credentials."""
    credentials = tmp_path / "object_storage_credentials"
    credentials.write_text(f"[default]\naws_access_key_id=AKIAGOOD\naws_secret_access_key={SECRET}")
    wanted["credentials_path"] = str(credentials)
    wanted["environment"] = {
        "AWS_ENDPOINT_URL": storage.url,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return wanted
