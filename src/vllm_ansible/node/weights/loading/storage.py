"""Where a model's files lie on this host, what they hold, and where there is room for a copy."""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Optional

from ...failure import Failure
from ...preflight import memory
from ...system import host
from ...system.page_cache import is_shown, resident_bytes
from ...system.storage import NETWORK, mount_of, mounts
from .. import safetensors
from .places import CHUNK, spread

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
# What a model sees or hears with has layers of its own, which no pipeline stage splits.
APART = re.compile(r"vis(?:ion|ual)|audio")
OTHER_WEIGHTS = (".bin", ".pt", ".gguf")
# Of each sampled place so much is looked up.
SAMPLES, SAMPLE = 512, 1 << 20


def look(place: str, cluster_dir: str) -> dict[str, Any]:
    """Return the file system under a directory of weights, and the room of this host in bytes."""
    mounted = mounts()
    own = host.existing_parent(cluster_dir)
    own_mount = mount_of(own, mounted)
    room = os.statvfs(own)
    mount = mount_of(place, mounted)
    return {
        "place": place,
        **mount,
        "network": is_network(mount["kind"]),
        "read_ahead_kib": read_ahead_kib(os.stat(place).st_dev),
        "memory_available": memory.meminfo()["available"],
        "local_kind": own_mount["kind"],
        "local_free": 0 if is_network(own_mount["kind"]) else room.f_bavail * room.f_frsize,
    }


def is_network(kind: str) -> bool:
    """Tell whether other hosts may share a file system of this kind."""
    return NETWORK.fullmatch(kind) is not None


def read_ahead_kib(device: int, folder: str = "/sys/class/bdi") -> Optional[int]:
    """Return how far the kernel reads ahead on a device; None where it does not say."""
    path = f"{folder}/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
    with suppress(OSError, ValueError), open(path, encoding="ascii") as text:
        return int(text.read())
    return None


def weight_files(place: str) -> list[str]:
    """Return the files that vLLM loads a model from, in order."""
    present = os.listdir(place)
    whole = [name for name in present if name.endswith(".safetensors")]
    indexed = set(safetensors.read_index(place).values()) & set(whole)
    names = indexed or whole or [one for one in present if one.endswith(OTHER_WEIGHTS)]
    return [os.path.join(place, name) for name in sorted(names)]


def contents(place: str, files: Iterable[str]) -> dict[str, Any]:
    """Return the bytes of a model: all, of each layer, and of what is in none.

    layers is empty where the files do not tell; count is what the configuration says.
    """
    files = list(files)
    sizes = [os.path.getsize(path) for path in files]
    layers: dict[str, int] = {}
    others = 0
    try:
        for path in files:
            tensors, _ = safetensors.read_header(path)
            for name, tensor in tensors.items():
                low, high = tensor["data_offsets"]
                found = None if APART.search(name) else LAYER.search(name)
                if found:
                    layers[found[1]] = layers.get(found[1], 0) + int(high) - int(low)
                else:
                    others += int(high) - int(low)
    except (Failure, OSError, KeyError, TypeError, ValueError):
        # What is wrong with the files is for the stage weights to say.
        layers, others = {}, 0
    return {"bytes": sum(sizes), "layers": layers, "others": others, "count": layer_count(place)}


def layer_count(place: str) -> int:
    """Return the layers that pipeline stages divide; 0 where the configuration does not say."""
    with (
        suppress(OSError, ValueError),
        open(os.path.join(place, "config.json"), encoding="utf-8") as text,
    ):
        config = json.load(text)
        config = config if isinstance(config, Mapping) else {}
        inner = config.get("text_config")
        known = {**config, **(inner if isinstance(inner, Mapping) else {})}
        count = known.get("num_hidden_layers")
        return count if isinstance(count, int) and not isinstance(count, bool) else 0
    return 0


def in_memory(files: list[str]) -> Optional[float]:
    """Return which share of the files is in memory, by samples; None where nobody may know."""
    sizes = [os.path.getsize(path) for path in files]
    seen = held = 0
    for number, offset, length in spread(sizes, SAMPLES * CHUNK):
        if not is_shown(files[number]):
            return None
        size = min(SAMPLE, length)
        # Not where it begins: headers were read there.
        offset += (length - size) // 2 // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        with open(files[number], "rb") as handle:
            held += min(size, resident_bytes(handle.fileno(), offset, size))
        seen += size
    return round(held / seen, 3) if seen else None
