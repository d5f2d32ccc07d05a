"""Measure to this host itself with node code, in the Python that runs this; JSON in and out."""

import json
import sys
import threading
import time

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
select, starved = responder.selector.select, []


def late(timeout=None):
    """Give the responder no time for so long, once, when datagrams have come."""
    ready = select(timeout)
    if request["starved"] and not starved and any(key.fileobj is responder.udp for key, _ in ready):
        starved.append(True)
        time.sleep(request["starved"])
        ready = select(0)
    # The question comes first: what is asked is not what was read.
    return sorted(ready, key=lambda one: one[0].fileobj is responder.udp)


responder.selector.select = late
# It ends with this process.
threading.Thread(target=responder.serve, args=(600,), daemon=True).start()
peer = {
    "address": request["address"],
    "ports": [[port, port] for port in [*request["ports"], request["closed"]]],
    "answers": request["ports"],
}
found = reach_probe.probe({"peer": peer}, other, 60.0)
print(json.dumps(found["peer"]))
