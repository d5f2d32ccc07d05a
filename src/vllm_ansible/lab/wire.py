"""A cable that is slow: a program between a host's interface and the bridge that holds frames back.

The kernel's own way, netem, is missing from many small kernels; this needs TUN and raw sockets.
Runs as `python wire.py INTERFACE TAP BRIDGE SECONDS [ADDRESS=SECONDS ...]` until it is terminated.
"""

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator

TUNSETIFF, TUNSETOFFLOAD, TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
OFFLOAD_CHECKSUM, OFFLOAD_TSO4, OFFLOAD_TSO6 = 0x01, 0x02, 0x04
SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
# Frames travel with this header of the kernel's, so that large and unchecksummed ones survive.
HEADER = 10
ETHERNET = 14
IPV4_SOURCE = slice(HEADER + ETHERNET + 12, HEADER + ETHERNET + 16)
LARGEST = HEADER + ETHERNET + 65536
Queue = deque[tuple[float, bytes]]


def open_tap(name: str) -> int:
    """Make the device that takes the host's place on the bridge."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(descriptor, TUNSETVNETHDRSZ, struct.pack("i", HEADER))
    fcntl.ioctl(descriptor, TUNSETOFFLOAD, OFFLOAD_CHECKSUM | OFFLOAD_TSO4 | OFFLOAD_TSO6)
    return descriptor


def open_interface(name: str) -> socket.socket:
    """Read and write whole frames on the bridge's end of the host's cable."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    raw.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
    raw.bind((name, 3))  # 3 is ETH_P_ALL, every kind of frame
    raw.setblocking(False)
    return raw


def arrivals(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Yield every frame that has arrived by now."""
    try:
        while True:
            yield read()
    except BlockingIOError:
        return


def push(queue: Queue, write: Callable[[bytes], int]) -> None:
    """Send on the frames whose time has come; a full device loses them, as a switch would."""
    while queue and queue[0][0] <= time.monotonic():
        with contextlib.suppress(OSError):
            write(queue.popleft()[1])


def carry(interface: str, tap: int, seconds: float, peers: dict[bytes, float]) -> None:
    """Move frames both ways, each after its delay."""
    raw = open_interface(interface)
    outward: Queue = deque()
    # One queue for each delay, so that a slow peer holds up nobody else.
    inward: dict[float, Queue] = {seconds + extra: deque() for extra in (0.0, *peers.values())}
    with selectors.DefaultSelector() as selector:
        selector.register(raw, selectors.EVENT_READ)
        selector.register(tap, selectors.EVENT_READ)
        while True:
            due = [queue[0][0] for queue in (outward, *inward.values()) if queue]
            selector.select(max(0.0, min(due) - time.monotonic()) if due else None)
            for frame in arrivals(lambda: raw.recv(LARGEST)):
                outward.append((time.monotonic() + seconds, frame))
            for frame in arrivals(lambda: os.read(tap, LARGEST)):
                wait = seconds + peers.get(frame[IPV4_SOURCE], 0.0)
                inward[wait].append((time.monotonic() + wait, frame))
            push(outward, lambda frame: os.write(tap, frame))
            for queue in inward.values():
                push(queue, raw.send)


def main() -> None:
    """Take the host's place on the bridge, carry frames, give the place back."""
    interface, name, bridge, seconds, *peers = sys.argv[1:]
    waits = {
        socket.inet_aton(address): float(wait)
        for address, wait in (peer.split("=") for peer in peers)
    }
    tap = open_tap(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    def ip(*words: str) -> None:
        subprocess.run(["ip", "link", "set", *words], check=True)  # noqa: S603, S607  # fixed words

    ip("dev", interface, "nomaster")
    try:
        ip("dev", name, "master", bridge, "up")
        carry(interface, tap, float(seconds), waits)
    finally:
        ip("dev", interface, "master", bridge)


if __name__ == "__main__":
    main()
