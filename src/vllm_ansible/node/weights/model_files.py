"""What the planner has to know of a model, read where its files are."""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import Any

from ..failure import Failure
from . import safetensors

CONFIG, QUANTIZATION = "config.json", "hf_quant_config.json"
LARGEST = 4 << 20
# Two bytes of a header in three are names; packed, those of 90,000 tensors are half a megabyte.
SHARD = ".safetensors"


def read(place: str) -> dict[str, Any]:
    """Return the configuration, and of each tensor its type and shape; `missing` says why not.

    `tensors` is packed. Where a shard is not there, the index names the tensors: `names`, `total`.
    """
    try:
        config = _text(os.path.join(place, CONFIG))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return {"missing": f"{os.path.join(place, CONFIG)}: {reason}"}
    found: dict[str, Any] = {"place": place, "config": config}
    try:
        found["quantization"] = _text(os.path.join(place, QUANTIZATION))
    except (OSError, ValueError):
        found["quantization"] = ""
    return {**found, **_stored(place)}


def pack(value: Any) -> str:
    """Return a value as text that is short enough for a module's answer."""
    return base64.b64encode(zlib.compress(json.dumps(value).encode(), 6)).decode()


def unpack(text: str) -> Any:
    """Return what `pack` was given."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def _stored(place: str) -> dict[str, Any]:
    """Return what the weights' files say of themselves; nothing where they say nothing."""
    try:
        index = safetensors.read_index(place)
        present = {name for name in os.listdir(place) if name.endswith(SHARD)}
        shards = set(index.values()) or present
        if shards - present:
            return {"names": pack(sorted(index)), "total": _total(place)}
        tensors: dict[str, Any] = {}
        for name in sorted(shards):
            header, _ = safetensors.read_header(os.path.join(place, name))
            tensors.update({key: [one["dtype"], one["shape"]] for key, one in header.items()})
    except (Failure, OSError, KeyError, TypeError):
        # What is wrong with the files is for the stage weights to say.
        return {}
    return {"tensors": pack(tensors)} if tensors else {}


def _total(place: str) -> int:
    """Return the bytes of all tensors as the index has them."""
    with open(os.path.join(place, safetensors.INDEX), encoding="utf-8") as index:
        metadata = json.load(index).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else 0
    return int(total) if isinstance(total, (int, float)) else 0


def _text(path: str) -> str:
    """Return a small file."""
    if os.path.getsize(path) > LARGEST:
        raise ValueError(f"larger than {LARGEST} bytes")
    with open(path, encoding="utf-8") as small:
        return small.read()
