"""Measure to this host itself with node code, in the Python that runs this; JSON in and out."""

import json
import sys
import threading

from vllm_ansible.node.reach import probe as reach_probe
from vllm_ansible.node.reach import responder as reach_responder

request = json.load(sys.stdin)
key, other = (request[name].encode() for name in ("key", "other"))
responder = reach_responder.Responder(
    key,
    request["address"],
    request["ports"],
    lambda: reach_responder.time.time_ns() + request["ahead"],
)
thread = threading.Thread(target=responder.serve, args=(request["seconds"],))
thread.start()
peer = {
    "address": request["address"],
    "ports": [[port, port] for port in [*request["ports"], request["closed"]]],
    "answers": request["ports"],
}
found = reach_probe.probe({"peer": peer}, other, 3.0)
thread.join()
print(json.dumps(found["peer"]))
