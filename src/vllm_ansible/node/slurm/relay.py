"""Carry bytes between the standard streams of a step and the agent of its job, and nothing else."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading

CHUNK_BYTES = 65536
# A site's prolog may have printed before: frames begin after this line.
BEGIN = b"vllm-ansible frames\n"


def main(address: str) -> int:
    """Copy both ways until one end is gone; return 3 where the job has no agent on this node."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect("\0" + address)
    except OSError as error:
        print(f"no agent answers at @{address}: {error.strerror}", file=sys.stderr)
        return 3
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    if struct.unpack("3i", peer)[1] != os.getuid():
        print(f"what listens at @{address} is not of this user", file=sys.stderr)
        return 3

    os.write(1, BEGIN)

    def upwards() -> None:
        while data := os.read(0, CHUNK_BYTES):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=upwards, daemon=True).start()
    while data := connection.recv(CHUNK_BYTES):
        while data:
            data = data[os.write(1, data) :]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
