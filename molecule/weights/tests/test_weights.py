"""The model on every host is whole, the same, and readable by the service."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

# Reads the format itself: 8 bytes of length, a header of JSON, then the tensors back to back.
READ = """
import hashlib, json, os, struct, sys
found = {}
for name in sorted(os.listdir(sys.argv[1])):
    path = os.path.join(sys.argv[1], name)
    if not name.endswith(".safetensors"):
        continue
    with open(path, "rb") as handle:
        content = handle.read()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = sorted(tensor["data_offsets"] for tensor in header.values())
    found[name] = {
        "names": len(header),
        "contiguous": all(one[1] == next[0] for one, next in zip(tensors, tensors[1:])),
        "whole": tensors[0][0] == 0 and 8 + length + tensors[-1][1] == len(content),
        "digest": hashlib.sha256(content).hexdigest(),
    }
print(json.dumps(found))
"""


@pytest.fixture
def model(host: Host, cluster_dir: str) -> str:
    found = host.check_output(f"ls {cluster_dir}/models/*/config.json").split()
    assert len(found) == 1
    return str(Path(found[0]).parent)


def test_every_tensor_is_there_to_its_last_byte(model: str, python: Callable[..., Any]) -> None:
    shards = python(READ, model)
    assert shards
    assert all(shard["whole"] and shard["contiguous"] for shard in shards.values())
    # SmolLM2-135M: 30 layers of 9 tensors, the embeddings and the last norm; the head is tied.
    assert sum(shard["names"] for shard in shards.values()) == 30 * 9 + 2
    # What the first host said is kept for the second: a digest differs where a byte does.
    kept = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "digests"
    digests = repr(sorted((name, shard["digest"]) for name, shard in shards.items()))
    if kept.exists():
        assert kept.read_text() == digests
    kept.write_text(digests)


def test_the_service_can_read_all_of_it_and_change_none(
    host: Host, model: str, python: Callable[..., Any]
) -> None:
    names = host.check_output("ls %s", model).split()
    assert {"config.json", "tokenizer.json"} <= set(names)
    said = host.run(
        "cd / && runuser -u vllm-molecule -- sh -c %s",
        f"cat {model}/* > /dev/null && touch {model}/new",
    )
    assert "touch" in said.stderr
    assert "Permission denied" in said.stderr
    config = python("import sys; print(open(sys.argv[1]).read())", f"{model}/config.json")
    assert (config["model_type"], config["num_hidden_layers"]) == ("llama", 30)
