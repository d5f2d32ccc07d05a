"""Two checkpoints of one architecture below the same path of two hosts: named, and never served.

Both have the same files of the same sizes with the same headers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .clone import Ran
from .two_hosts import CLUSTER_DIR, TwoHosts

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.soak]
MODEL = "/srv/checkpoints/smollm2"
SHARD = f"{MODEL}/model.safetensors"
PACKAGE = "package:smollm2-135m-instruct"
MADE = f"{CLUSTER_DIR}/models/package--smollm2-135m-instruct"
PROBE = {"prompt": "What is the capital of France?", "expect": "Paris"}
# Nothing here depends on links and devices, and nothing is timed.
SKIPPED = ("--skip-tags", "verify,benchmark")

# Put the model where an operator would, readable for everybody.
COPY = """
import os, shutil, sys
made, named = sys.argv[1:]
shutil.rmtree(named, ignore_errors=True)
shutil.copytree(made, named)
for folder, _, files in os.walk(named):
    os.chmod(folder, 0o755)
    for name in files:
        os.chmod(os.path.join(folder, name), 0o644)
print("null")
"""
# Multiply every weight of layers 10 to 14 by 0.98, as another training would have left them. By
# transformers it answers as before, and its numbers lie 0.120 from those of the first.
CHANGE = """
import array, json, struct, sys
def scaled(bits):
    value, = struct.unpack("<f", struct.pack("<I", bits << 16))
    whole, = struct.unpack("<I", struct.pack("<f", value * 0.98))
    return whole + 0x8000 >> 16
table = [scaled(bits) for bits in range(1 << 16)]
changed = 0
with open(sys.argv[1], "r+b") as weights:
    length, = struct.unpack("<Q", weights.read(8))
    for name, tensor in json.loads(weights.read(length)).items():
        if not name.startswith(tuple(f"model.layers.{one}." for one in range(10, 15))):
            continue
        assert tensor["dtype"] == "BF16", tensor
        low, high = (8 + length + offset for offset in tensor["data_offsets"])
        weights.seek(low)
        values = array.array("H", weights.read(high - low))
        weights.seek(low)
        weights.write(array.array("H", map(table.__getitem__, values)).tobytes())
        changed += 1
print(changed)
"""
LOOK = """
import hashlib, json, pathlib, struct, sys
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    if path.is_file():
        content = path.read_bytes()
        found[path.name] = [len(content), hashlib.sha256(content).hexdigest()]
        if path.suffix == ".safetensors":
            head = content[: 8 + struct.unpack("<Q", content[:8])[0]]
            found["header"] = [len(head), hashlib.sha256(head).hexdigest()]
print(json.dumps(found))
"""

# Whether somebody listens at a port of the host's address on the data plane, or of any other.
KNOCK = """
import socket, subprocess, sys
words = subprocess.run(["ip", "-o", "-4", "address"], stdout=subprocess.PIPE, text=True).stdout
def answers(address):
    try:
        socket.create_connection((address, int(sys.argv[1])), timeout=5).close()
    except OSError:
        return False
    return True
found = [line.split()[3].split("/")[0] for line in words.splitlines()]
print(str(any(answers(one) for one in found)).lower())
"""


def engine(name: str, port: int, hosts: list[str], **more: Any) -> dict[str, Any]:
    """Return an engine with the named model on these hosts."""
    arguments = {
        "enforce_eager": True,
        "max_model_len": 1024,
        "dtype": "float32",
        "kv_cache_memory_bytes": 1 << 28,
    }
    told = {"name": name, "model": MODEL, "hosts": hosts, "port": port, "probe": PROBE}
    return {**told, "vllm_args": arguments, **more}


BOTH = engine("both", 8460, ["lab1", "lab2"], layout={"tensor": 1, "pipeline": 2}, nodes=2)
ALONE = {"executor": "mp", "layout": {"tensor": 1, "pipeline": 1}}
LEFT = engine("left", 8461, ["lab1"], **ALONE)
RIGHT = engine("right", 8462, ["lab2"], **ALONE)

DOORS = [("lab1", 8461), ("lab2", 8462)]


def site(hosts: TwoHosts, engines: list[dict[str, Any]], *arguments: str) -> Ran:
    """Run the shipped inventory of the lab with these engines."""
    path = hosts.inventory / "group_vars" / "all.yml"
    shipped = yaml.safe_load(path.read_text())
    # What transformers computes for the same files cannot tell which of two checkpoints is meant.
    told = {**shipped, "engines": engines, "vllm_reference_gib": 0}
    path.write_text(yaml.safe_dump(told))
    return hosts.run(*arguments)


def copy(hosts: TwoHosts, host: str) -> None:
    """Put the model as it was made below the path on a host."""
    hosts.python(host, COPY, MADE, MODEL)


def files(hosts: TwoHosts) -> list[dict[str, Any]]:
    return [hosts.python(one.name, LOOK, MODEL) for one in hosts.lab.record.hosts]


@pytest.fixture(scope="module")
def mixed(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    """Return two hosts, ready to serve, with a checkpoint each; nothing of them stays behind."""
    kept = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    hosts = TwoHosts(Path(kept) / "mixed" if kept else tmp_path_factory.mktemp("mixed"))
    try:
        brings = [{"name": "seed", "model": PACKAGE}]
        ran = site(hosts, brings, "--tags", "validate,provision,prepare,install,weights")
        assert ran.status == 0, ran.output
        for host in ("lab1", "lab2"):
            copy(hosts, host)
        assert hosts.python("lab2", CHANGE, SHARD) == 5 * 9
        yield hosts
    finally:
        if not kept:
            hosts.lab.down()


def test_one_engine_over_two_checkpoints_is_refused_before_anything_starts(
    mixed: TwoHosts,
) -> None:
    one, other = files(mixed)
    name = "model.safetensors"
    assert one[name][0] == other[name][0] > 16 << 20, "small enough to be read whole at once"
    assert [key for key in one if one[key] != other[key]] == [name]
    ran = site(mixed, [BOTH, LEFT, RIGHT], *SKIPPED)
    failure = ran.failure
    assert failure["stage"] == "weights"
    assert failure["msg"] == "the model of engine both is not the same on all its hosts"
    assert failure["where"] == f"lab2: {MODEL}"
    assert failure["found"].endswith(f"; {name} holds something else"), failure
    assert failure["expected"].endswith(", as on lab1")
    assert not {"plan", "cluster", "serve"} & set(ran.stages)
    assert mixed.processes() == {"lab1": [], "lab2": []}


def test_an_engine_for_each_checkpoint_is_named_and_neither_goes_on_serving(
    mixed: TwoHosts,
) -> None:
    """No gate of the weights can know that one path means one model everywhere."""
    ran = site(mixed, [LEFT, RIGHT], *SKIPPED)
    failure = ran.failure
    assert failure["stage"] == "serve", failure
    assert "left" in failure["msg"] and "right" in failure["msg"], failure
    assert "log probabilities differ by" in failure["found"], failure
    assert not ran.evidence("serve")
    assert [mixed.python(host, KNOCK, str(port)) for host, port in DOORS] == [False, False]


def test_the_same_checkpoint_on_both_is_served(mixed: TwoHosts) -> None:
    copy(mixed, "lab2")
    one, other = files(mixed)
    assert one == other
    ran = site(mixed, [LEFT, RIGHT], *SKIPPED)
    assert ran.status == 0, ran.output
    (evidence,) = ran.evidence("serve")
    answers = {one["name"]: one["answer"] for one in evidence["values"]["engines"]}
    assert all("Paris" in answers[name] for name in ("left", "right")), answers
    assert [mixed.python(host, KNOCK, str(port)) for host, port in DOORS] == [True, True]
