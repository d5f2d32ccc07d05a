"""Which ports of this host can be tried: free ones, our own, a stranger's, and the kernel's own."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

from .. import launcher
from ..failure import Failure
from ..process import family, port_holders, process
from .wire import socket_for

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
BACKLOG = 1024


def fold(ports: Iterable[int]) -> list[list[int]]:
    """Return ports as ranges, first and last of each."""
    ranges: list[list[int]] = []
    for port in sorted(set(ports)):
        if ranges and port == ranges[-1][1] + 1:
            ranges[-1][1] = port
        else:
            ranges.append([port, port])
    return ranges


def unfold(ranges: Iterable[Iterable[int]]) -> list[int]:
    """Return the ports of ranges."""
    return [port for first, last in ranges for port in range(first, last + 1)]


def listen(address: str, port: int) -> Optional[socket.socket]:
    """Return a socket that listens; None where the port is taken."""
    made = socket_for(address, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise Failure(
            f"nothing can listen on port {port} of {address}: {error.strerror}",
            expected="the data-plane address on an interface of this host that is up",
            found=str(error.strerror),
            where=f"{address}:{port}",
            fix="compare it with `ip -brief address`; data_plane_network or data_plane_interface "
            "in the inventory chooses another",
        ) from error
    return made


def free(address: str, port: int) -> bool:
    """Tell whether a port can be listened on right now."""
    made = listen(address, port)
    if made is not None:
        made.close()
    return made is not None


def free_for_datagrams(address: str, port: int) -> bool:
    """Tell whether datagrams can be received on a port right now."""
    with socket_for(address, socket.SOCK_DGRAM) as made:
        try:
            made.bind((address, port))
        except OSError:
            return False
    return True


def of_the_kernel(address: str, count: int, planned: Iterable[int]) -> list[int]:
    """Return free ports spread over the range that the kernel hands out by itself."""
    first, last = (int(word) for word in RANGE.read_text().split())
    unwanted, found = set(planned), []
    for number in range(count):
        start = first + (last - first) * (2 * number + 1) // (2 * count)
        ports = (port for port in range(start, last + 1) if port not in unwanted)
        both = (port for port in ports if free(address, port) and free_for_datagrams(address, port))
        port = next(both, None)
        if port is not None:
            found.append(port)
            unwanted.add(port)
    return found


def ours(cluster_dir: str) -> set[int]:
    """Return every living process of the cluster, known by its records."""
    found, table = set(), launcher.process_table()
    for name in process.recorded_names(cluster_dir):
        found |= family.marked(process.Files(cluster_dir, name).record, table)
    return found | launcher.descendants(found, table)


def sort_out(
    address: str, engines: Iterable[Iterable[int]], cluster_dir: str
) -> dict[str, list[Any]]:
    """Return which planned ports are free, which are our own processes', and who has the others.

    The ports of each engine come together. An engine that runs may open any of its ports at any
    moment: those of them that nobody has are `left` alone.
    """
    planned = [sorted(set(ports)) for ports in engines]
    available = {port for ports in planned for port in ports if free(address, port)}
    taken = sorted({port for ports in planned for port in ports} - available)
    known = ours(cluster_dir) if taken else set()
    holders = {one["port"]: one for one in port_holders.holders(taken)}
    nobody = {
        "pid": None,
        "who": "a connection of this host, or a process that this user may not inspect",
    }
    own, strangers = set(), []
    for port in taken:
        holder = {"port": port, **nobody, **holders.get(port, {})}
        if holder["pid"] in known:
            own.add(port)
        else:
            strangers.append({key: holder[key] for key in ("port", "pid", "who")})
    left = {port for ports in planned if own & set(ports) for port in ports} & available
    return {
        "free": sorted(available - left),
        "own": sorted(own),
        "strangers": strangers,
        "left": sorted(left),
    }
