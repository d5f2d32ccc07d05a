"""A model of object storage that one host brings."""

from __future__ import annotations

from typing import Any

from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import hub_manifest, models
from vllm_ansible.node.weights.models import model_of

from ..passing.nodes import silent

BUCKET, PREFIX = "models", "team/tiny"
STORED = model_of({"name": "chat", "model": f"s3://{BUCKET}/{PREFIX}/"})
SHARDS = ("model-1-of-2.safetensors", "model-2-of-2.safetensors")
SECRET = "wJalrXUtnFEMISECRET"  # noqa: S105  nobody's


def brought(wanted: dict[str, Any]) -> dict[str, Any]:
    """Find digests, ask, fetch and return the record."""
    hub_manifest.ask(STORED, wanted, reads=True)
    wanted["store"]["manifests"] = {STORED.slug(): hub_manifest.ask(STORED, wanted)}
    weights.fetch_all([STORED], wanted, silent)
    record = models.look(STORED, wanted["models_dir"])
    assert record is not None
    return record
