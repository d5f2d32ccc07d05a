"""What the two ends of a reach measurement say to each other, and how they prove the cluster's key.

A client opens with a nonce and its proof; who cannot prove the key gets no byte. Then single bytes
ask: PING is answered with two clocks, COUNT with how many datagrams of this session arrived.
Numbers are in network order.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from contextlib import suppress

from ..cluster.key import derived

# The key of Ray's API server opens nothing here, nor does what is said here open Ray.
DOMAIN = b"vllm-ansible reach 1"
NONCE_BYTES = 16
PROOF_BYTES = 32
HELLO_BYTES = NONCE_BYTES + PROOF_BYTES
WELCOME = struct.Struct(">16sH")  # session, UDP port
WELCOME_BYTES = WELCOME.size + PROOF_BYTES
PING, COUNT = b"p", b"c"
CLOCKS = struct.Struct(">qq")  # when the byte came and when the answer left, ns since 1970
COUNTS = struct.Struct(">II")  # datagrams that came, datagrams that this host itself dropped
DATAGRAM = struct.Struct(">16sI44x")  # session, number; 64 bytes


def key_from(path: str) -> bytes:
    """Return the key that a cluster's secret file gives for this purpose alone."""
    return derived(path, DOMAIN)


def proof(key: bytes, *parts: bytes) -> bytes:
    """Return what only a holder of the key can say about these parts of fixed lengths."""
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def hello(key: bytes, nonce: bytes) -> bytes:
    """Return a client's first words."""
    return nonce + proof(key, b"hello", nonce)


def is_hello(key: bytes, said: bytes) -> bool:
    """Tell whether first words come from a holder of the key."""
    nonce, shown = said[:NONCE_BYTES], said[NONCE_BYTES:]
    return hmac.compare_digest(shown, proof(key, b"hello", nonce))


def welcome(key: bytes, nonce: bytes, session: bytes, udp_port: int) -> bytes:
    """Return the answer to a client's first words."""
    body = WELCOME.pack(session, udp_port)
    return body + proof(key, b"welcome", nonce, body)


def read_welcome(key: bytes, nonce: bytes, said: bytes) -> tuple[bytes, int]:
    """Return session and UDP port, or raise ValueError where the key is not proven."""
    body, shown = said[: WELCOME.size], said[WELCOME.size :]
    if not hmac.compare_digest(shown, proof(key, b"welcome", nonce, body)):
        raise ValueError("the answer does not prove the cluster's key")
    session, udp_port = WELCOME.unpack(body)
    return session, udp_port


def socket_for(address: str, kind: socket.SocketKind) -> socket.socket:
    """Return a socket of the address's family that does not block."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, kind)
    made.setblocking(False)
    if kind == socket.SOCK_STREAM:
        # Closed by a reset: no port of an engine is left waiting for the end of a connection.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return made


def dropped(sock: socket.socket) -> int:
    """Return how many datagrams the kernel dropped since this socket was not read fast enough."""
    inode = str(os.fstat(sock.fileno()).st_ino)
    name = "udp6" if sock.family == socket.AF_INET6 else "udp"
    with suppress(OSError), open(f"/proc/net/{name}", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if len(fields) > 12 and fields[9] == inode:
                return int(fields[12])
    return 0
