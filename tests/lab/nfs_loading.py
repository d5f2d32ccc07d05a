"""A model on an NFS server behind a slow line: what is foretold of loading it, and what it takes.

Runs as root on a virtual machine, with src/ and nfs_clients.py beside it; prints what it found as
JSON. The server is reached from a network namespace over a link that sends at RATE.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "src"))

from vllm_ansible.node.weights.loading import rate, storage, way

PLACE = "/mnt/1/models/org--model"
# 2.5 MB/s: far below what emulated processors can do.
RATE = "20mbit"
SHARDS, SHARD = 4, 16 << 20


def write(place):
    """Write shards of one tensor each, and see them at the server."""
    os.makedirs(place)
    for number in range(SHARDS):
        tensor = {"dtype": "U8", "shape": [SHARD], "data_offsets": [0, SHARD]}
        raw = json.dumps({f"model.layers.{number}.weight": tensor}).encode()
        with open(f"{place}/model-{number}.safetensors", "wb") as shard:
            shard.write(len(raw).to_bytes(8, "little") + raw)
            shard.write(os.urandom(SHARD))
            shard.flush()
            os.fsync(shard.fileno())
    with open(f"{place}/config.json", "w") as config:
        json.dump({"num_hidden_layers": SHARDS}, config)


def forget(files):
    """Let memory forget all files."""
    for path in files:
        with open(path, "rb") as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def looked(place):
    """Return what is foretold of loading a model, and how long its files take to read after it."""
    files = storage.weight_files(place)
    seen = storage.look(place, "/root")
    held = storage.contents(place, files)
    reads = way.way_of(seen["kind"], held["bytes"], seen["memory_available"], [])
    found = {"kind": seen["kind"], "network": seen["network"], "way": reads, "ways": {}}
    found["read_ahead_kib"] = seen["read_ahead_kib"]
    for name in (way.MAPPED, way.AHEAD):
        forget(files)
        readers = way.readers_of(name, 1, [])
        measured = rate.measure(files, name, readers, SHARD, 4)
        forget(files)
        whole = rate.measure(files, name, readers, held["bytes"], 600)
        found["ways"][name] = {
            "rate": measured,
            "expected_seconds": held["bytes"] / measured["bytes_per_second"],
            "took_seconds": whole["seconds"] * held["bytes"] / whole["bytes"],
        }
    return found


def shaped():
    """Export a directory, mount it in a namespace, and let the server send slowly."""
    import nfs_clients

    nfs_clients.serve()
    nfs_clients.client(1)
    write("/srv/open/models/org--model")
    words = f"root tbf rate {RATE} burst 32k latency 400ms"
    nfs_clients.run("tc", "qdisc", "add", "dev", "link1", *words.split())


if __name__ == "__main__":
    shaped()
    print(json.dumps(looked(PLACE)))
