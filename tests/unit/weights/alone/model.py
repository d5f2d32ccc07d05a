"""A model of two shards."""

from __future__ import annotations

import json
import struct

from vllm_ansible.node.weights.models import Model

MODEL = Model("hub", "org/tiny")


def shard(tensor: str) -> bytes:
    """Return a weights file that holds one tensor of eight bytes."""
    header = {tensor: {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + tensor.encode().ljust(8)[:8]
