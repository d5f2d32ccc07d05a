"""What befalls a host of the tests for real: a disk that is full, a link that grows slower."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x2, 0x1000
SIOCETHTOOL, ETHTOOL_SSET, FULL_DUPLEX = 0x8946, 2, 1
# struct ethtool_cmd of linux/ethtool.h.
ETHTOOL_CMD = "IIIHBBBBBBIIHBBIII"
DISK_BYTES = 32 << 20


@contextmanager
def link(name: str) -> Iterator[Callable[[int], None]]:
    """Have a network device; gives a way to have it run at another rate, in Mbit/s.

    A tap: of a pair of veth the kernel always says the same rate.
    """
    file = os.open("/dev/net/tun", os.O_RDWR)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def run_at(rate: int) -> None:
            low, high = rate & 0xFFFF, rate >> 16
            words = (ETHTOOL_SSET, 0, 0, low, FULL_DUPLEX, *[0] * 7, high, *[0] * 5)
            asked = ctypes.create_string_buffer(struct.pack(ETHTOOL_CMD, *words))
            place = ctypes.addressof(asked)
            fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP", name.encode(), place))

        try:
            asked = struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI)
            fcntl.ioctl(file, TUNSETIFF, asked)
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
            yield run_at
        finally:
            os.close(file)


def fill(directory: Path) -> Path:
    """Write into a directory until its file system has no room; return the file."""
    filling = directory / "filling"
    with suppress(OSError), filling.open("wb", buffering=0) as file:
        while file.write(b"x" * 65536):
            pass
    # What is left is less than a block of that size.
    with suppress(OSError), filling.open("ab", buffering=0) as file:
        while file.write(b"x" * 512):
            pass
    return filling


@contextmanager
def mounted(directory: Path, *options: str) -> Iterator[None]:
    """Have a file system at a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", *options, str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@contextmanager
def disk(image: Path, directory: Path) -> Iterator[None]:
    """Have a small disk at a directory, as a file of this one."""
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    with mounted(directory, "-o", "loop", str(image)):
        yield
