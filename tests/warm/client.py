"""Have the server run what comes on standard input, and end as it does."""

import array
import json
import os
import socket
import sys


def main() -> None:
    """Send what the process was given, and wait."""
    server = socket.socket(socket.AF_UNIX)
    try:
        # What is no module is for Python itself, and so is what another user runs.
        if len(sys.argv) > 1:
            raise OSError
        server.connect(os.environ.get("WARM_PYTHON", "/dev/null"))
    except OSError:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606
    job = json.dumps([os.getcwd(), dict(os.environ), os.umask(0)]).encode()
    files = array.array("i", [0, 1, 2])
    server.sendmsg([len(job).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    server.sendall(job)
    os._exit(int(server.recv(8) or b"70"))


main()
