"""What a host with a door shows to another network: parts that run in a namespace each."""

from __future__ import annotations

import errno
import json
import selectors
import socket
import sys
import tempfile
from pathlib import Path

from .running import Running

# Of the many at once that a host takes without dropping one.
AT_ONCE = 500


def serve() -> None:
    """Run a door on every address before engines on loopback, until standard input ends."""
    with tempfile.TemporaryDirectory(prefix="do") as directory:
        door = Running(Path(directory))
        door.settings["door_listen"] = f"*:{door.port}"
        with door, socket.create_server(("", 22)):
            print(json.dumps({"door": door.port, "engine": door.engines[0].port}), flush=True)
            for line in sys.stdin:
                # As an engine that listens on every address.
                listener = socket.create_server(("", int(line)))
                print(listener.getsockname()[1], flush=True)


def scan(address: str) -> list[int]:
    """Return every port of an address that takes a connection."""
    found = []
    with selectors.DefaultSelector() as waiting:

        def ends(seconds: float) -> None:
            for key, _ in waiting.select(seconds):
                waiting.unregister(key.fileobj)
                one, port = key.data
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.append(port)
                one.close()

        for port in range(1, 65536):
            one = socket.socket()
            one.setblocking(False)
            if one.connect_ex((address, port)) == errno.EINPROGRESS:
                waiting.register(one, selectors.EVENT_WRITE, (one, port))
            else:
                one.close()
            while len(waiting.get_map()) >= AT_ONCE:
                ends(10)
        while waiting.get_map():
            ends(10)
    return sorted(found)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(json.dumps(scan(sys.argv[2])))
