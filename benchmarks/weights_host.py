"""One host's part of benchmarks/weights.py: complete a model, say how long it took, pass it on.

Run on a lab host as `weights_host.py REQUEST.json`; ends when its standard input does.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from pathlib import Path

from vllm_ansible.node.cluster.key import derived
from vllm_ansible.node.weights.store.gathering import Gathering, Part
from vllm_ansible.node.weights.store.hub import Hub
from vllm_ansible.node.weights.store.manifest import parse
from vllm_ansible.node.weights.store.receiver import Peer, way_of
from vllm_ansible.node.weights.store.sender import Sender
from vllm_ansible.node.weights.store.shelf import Shelf
from vllm_ansible.node.weights.store.signing import DOMAIN


def main() -> None:
    """Take part in one run."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    manifest = parse("model", "org/model", asked["manifest"])
    shelf = Shelf(asked["models_dir"], "model")
    key = derived(asked["key_file"], DOMAIN)
    sender = Sender((asked["address"], asked["port"]), key, {"model": (shelf, manifest)})
    threading.Thread(target=sender.serve_forever, daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    known = {host: Peer(host, at, asked["port"]) for host, at in asked["addresses"].items()}
    peers = {name: way_of(hosts, known) for name, hosts in asked["upstream"].items()}
    variables = {"HF_ENDPOINT": asked["hub"], "HF_HUB_DISABLE_XET": "1"}
    path = {"PYTHONPATH": asked["site_packages"], "PATH": "/usr/bin:/bin"}
    hub = Hub(sys.executable, asked["program"], {**variables, **path}, asked["workers"], 60.0)
    gathering = Gathering(
        [Part(manifest, shelf, peers)], key, asked["address"], hub, asked["streams"]
    )
    started = time.monotonic()
    gathering.run(lambda *_: None)
    seconds = time.monotonic() - started
    print(json.dumps({"seconds": seconds, "troubles": gathering.line.troubles}), flush=True)
    sys.stdin.readline()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(one.ru_utime + one.ru_stime for one in used)
    print(json.dumps({"processor_seconds": processor}), flush=True)


main()
