"""Two NFS clients and their server on one machine, and how a directory of models does on them.

Runs as root on a virtual machine, with src/ beside it; prints what it found as JSON. Each client is
a network namespace with a host name of its own, for by that an NFS server tells clients apart; two
mounts of one client would share its locks and delegations.
"""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "src"))

from vllm_ansible.node.cluster import directory_mark
from vllm_ansible.node.failure import Failure
from vllm_ansible.node.weights.store.disk_failure import disk_errors_told
from vllm_ansible.node.weights.store.manifest import File
from vllm_ansible.node.weights.store.shelf import Shelf

EXPORTS = (("open", "no_root_squash", 1), ("squashed", "root_squash", 2))
LINE = "/srv/{} 10.9.0.0/16(rw,{},no_subtree_check,fsid={})\n"


def run(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def serve():
    for name, _, _ in EXPORTS:
        os.makedirs(f"/srv/{name}")
    with open("/etc/exports", "w") as exports:
        exports.write("".join(LINE.format(*one) for one in EXPORTS))
    run("systemctl", "restart", "nfs-server")
    run("exportfs", "-ra")


def client(number):
    """Make a client whose mounts are /mnt/<number> and /mnt/<number>-squashed."""
    name, link = f"client{number}", f"link{number}"
    run("ip", "netns", "add", name)
    run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth1", "netns", name)
    run("ip", "address", "add", f"10.9.{number}.1/24", "dev", link)
    run("ip", "link", "set", link, "up")
    for words in (
        ("address", "add", f"10.9.{number}.2/24", "dev", "eth1"),
        ("link", "set", "eth1", "up"),
    ):
        run("ip", "-netns", name, *words)
    for export, place in (("open", f"/mnt/{number}"), ("squashed", f"/mnt/{number}-squashed")):
        os.makedirs(place)
        mount = f"hostname {name}; mount -t nfs4 10.9.{number}.1:/srv/{export} {place}"
        run("nsenter", f"--net=/run/netns/{name}", "unshare", "--uts", "sh", "-c", mount)


def marks():
    """Return how many marks eight processes of two clients made at once, and what is left."""
    places = [f"/mnt/{number}/models" for number in (1, 2)] * 4
    # What is not there yet is remembered by clients, too.
    assert not any(map(directory_mark.read, places))
    with ProcessPoolExecutor(8) as pool:
        made = set(pool.map(directory_mark.make, places))
    return {"different": len(made), "left": sorted(os.listdir(places[1]))}


def locks():
    """Return what the second client sees and does while the first one tends a model."""
    first, second = (Shelf(f"/mnt/{number}/models", "org--model") for number in (1, 2))
    steps = []

    def tend():
        with second.tend(lambda: steps.append("waits")):
            steps.append("tends")

    with first.tend(lambda: None):
        second.prepare()
        seen = second.tended()
        other = threading.Thread(target=tend)
        other.start()
        while "waits" not in steps:
            time.sleep(0.1)
        steps.append("first is done")
    other.join()
    return {"seen": seen, "steps": sorted(set(steps), key=steps.index), "after": first.tended()}


def verified():
    """Return the seconds until one client knows, by its own look, what the other verified."""
    first, second = (Shelf(f"/mnt/{number}/models", "org--model") for number in (1, 2))
    seconds = []
    for name in ("one.safetensors", "two.safetensors"):
        content = os.urandom(1 << 20)
        file = File(name, len(content), hashlib.sha256(content).hexdigest())
        arrived = os.path.join(first.store, name)
        with open(arrived, "wb") as handle:
            handle.write(content)
        # The second client remembers that there was nothing.
        assert not second.whole(file)
        first.add(file, arrived, file.sha256)
        began = time.monotonic()
        while not second.whole(file):
            time.sleep(0.05)
        seconds.append(time.monotonic() - began)
    return seconds


def refusal():
    try:
        with disk_errors_told("/mnt/1-squashed/models"):
            Shelf("/mnt/1-squashed/models", "org--model").prepare()
    except Failure as failure:
        return failure.details["found"]
    return ""


if __name__ == "__main__":
    serve()
    for one in (1, 2):
        client(one)
    found = {"marks": marks(), "locks": locks(), "verified": verified(), "refusal": refusal()}
    print(json.dumps(found))
