"""Read the addresses of this host without any tool but the kernel's own files."""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Any

NET = Path("/sys/class/net")
# if_nametoindex, getifaddrs(3): the standard library lists interfaces but not their addresses.
_LIBC = ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6", use_errno=True)


class _SockAddr(ctypes.Structure):
    _fields_ = [("family", ctypes.c_ushort), ("data", ctypes.c_ubyte * 14)]


class _IfAddrs(ctypes.Structure):
    pass


_IfAddrs._fields_ = [
    ("next", ctypes.POINTER(_IfAddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_SockAddr)),
    ("netmask", ctypes.POINTER(_SockAddr)),
    ("peer", ctypes.POINTER(_SockAddr)),
    ("data", ctypes.c_void_p),
]


def _ipv4(pointer: Any) -> str | None:
    """Return the dotted IPv4 address behind a sockaddr pointer, or None for other families."""
    if not pointer or pointer.contents.family != socket.AF_INET:
        return None
    return ".".join(str(byte) for byte in pointer.contents.data[2:6])


def interface_kind(name: str) -> str:
    """Return `loopback`, `bridge` (container or libvirt bridges too), `virtual` or `physical`."""
    if name == "lo":
        return "loopback"
    if (NET / name / "bridge").exists():
        return "bridge"
    # Only a device on a bus has this link; veth pairs, tunnels and bonds do not.
    return "physical" if (NET / name / "device").exists() else "virtual"


def addresses() -> list[dict[str, Any]]:
    """Return every IPv4 address: interface, address, prefix length, network and kind."""
    first = ctypes.POINTER(_IfAddrs)()
    if _LIBC.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "getifaddrs failed")
    found = []
    try:
        entry = first
        while entry:
            name = entry.contents.name.decode()
            address, mask = _ipv4(entry.contents.address), _ipv4(entry.contents.netmask)
            if address and mask:
                interface = ipaddress.IPv4Interface(f"{address}/{mask}")
                found.append(
                    {
                        "interface": name,
                        "address": address,
                        "prefix": interface.network.prefixlen,
                        "network": str(interface.network),
                        "kind": interface_kind(name),
                    }
                )
            entry = entry.contents.next
    finally:
        _LIBC.freeifaddrs(first)
    return found


def default_route_interface(table: str = "/proc/net/route") -> str:
    """Return the interface of the IPv4 default route with the lowest metric, or an empty string."""
    best = ("", 1 << 32)
    for line in Path(table).read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == "00000000" and int(fields[6]) < best[1]:
            best = (fields[0], int(fields[6]))
    return best[0]


def resolve(name: str) -> str:
    """Return the IPv4 address a host name resolves to here, or an empty string."""
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def listening_ports(tables: str = "/proc/net/tcp") -> dict[int, list[str]]:
    """Return the listening TCP ports of this host, each with the addresses it is bound to."""
    ports: dict[int, list[str]] = {}
    for line in Path(tables).read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] != "0A":  # TCP_LISTEN
            continue
        address, port = fields[1].split(":")
        # The kernel prints the address as one native-endian word.
        dotted = socket.inet_ntoa(struct.pack("=I", int(address, 16)))
        ports.setdefault(int(port, 16), []).append(dotted)
    return ports
