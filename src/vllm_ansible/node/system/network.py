"""Read the addresses of this host without any tool but the kernel's own files."""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
import socket
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
