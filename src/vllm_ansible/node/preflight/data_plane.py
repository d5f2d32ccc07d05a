"""The interface that carries an engine's data: its state, its name, and the way to every peer."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from ..kernel_files import number, text
from ..system import network

# linux/rtnetlink.h
RTM_GETROUTE, NLM_F_REQUEST, NLMSG_ERROR = 26, 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
HEADER, ROUTE = struct.Struct("=IHHII"), struct.Struct("=BBBBBBBBI")
COUNTERS = (
    *("rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_crc_errors", "tx_carrier_errors"),
)
RESOLVE_SECONDS = 2.0


def interface(name: str, root: Path = Path("/")) -> Optional[dict[str, Any]]:
    """Return state, MTU, speed in Mbit/s where there is one, and counters; None if missing."""
    top = root / "sys/class/net" / name
    if not text(top / "mtu"):
        return None
    speed = number(top / "speed")
    return {
        "state": text(top / "operstate"),
        "carrier": text(top / "carrier") == "1",
        "mtu": number(top / "mtu"),
        # Bridges and devices that are down say -1.
        "speed": speed if speed and speed > 0 else None,
        "counters": {one: number(top / "statistics" / one) for one in COUNTERS},
    }


def resolved(hostname: str) -> Optional[list[str]]:
    """Return the addresses of a name, none if it has none; None if no answer comes in time."""
    found: list[str] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
        except OSError:
            return
        found.extend(sorted({str(one[4][0]) for one in answers}))

    # A name server that does not answer holds the C library for much longer.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    # In two parts: a process that was given no time waits once more for its thread.
    for _ in range(2):
        thread.join(RESOLVE_SECONDS / 2)
    return None if thread.is_alive() else found


def source_address(peer: str) -> str:
    """Return the address that this host would send from to a peer; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect((peer, 9))
        return str(asked.getsockname()[0])


def route_interface(peer: str) -> dict[str, str]:
    """Return the interface, and the gateway if any, by which the kernel would reach a peer."""
    payload = ROUTE.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0)
    payload += struct.pack("=HH", 8, RTA_DST) + socket.inet_aton(peer)
    request = HEADER.pack(HEADER.size + len(payload), RTM_GETROUTE, NLM_F_REQUEST, 1, 0) + payload
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as asked:
        asked.settimeout(RESOLVE_SECONDS)
        asked.sendto(request, (0, 0))
        answer = asked.recv(65536)
    length, kind, *_ = HEADER.unpack_from(answer)
    if kind == NLMSG_ERROR:
        code = -struct.unpack_from("=i", answer, HEADER.size)[0]
        raise OSError(code, "the kernel knows no route")
    return attributes(answer[HEADER.size + ROUTE.size : length])


def attributes(data: bytes) -> dict[str, str]:
    """Return interface and gateway of a route's attributes."""
    found = {}
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        value = data[4:size]
        if kind == RTA_OIF:
            found["interface"] = socket.if_indextoname(struct.unpack("=I", value)[0])
        elif kind == RTA_GATEWAY:
            found["gateway"] = socket.inet_ntoa(value)
        data = data[(size + 3) & ~3 :]
    return found


def route(peer: str) -> dict[str, str]:
    """Return source, interface and gateway of the way to a peer, or `error`."""
    try:
        return {"source": source_address(peer), **route_interface(peer)}
    except OSError as error:
        return {"error": error.strerror or str(error)}


def look(name: str, peers: Mapping[str, str]) -> dict[str, Any]:
    """Return the data plane's interface and this host's view of its peers, by their names."""
    hostname = socket.gethostname()
    return {
        "hostname": hostname,
        "resolves_to": resolved(hostname),
        "interface": interface(name),
        "addresses": [one["address"] for one in network.addresses() if one["interface"] == name],
        "routes": {peer: route(address) for peer, address in peers.items()},
    }
