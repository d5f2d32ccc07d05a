"""Versions, page size, compiler, machine type and clock of a host."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sysconfig
from pathlib import Path
from typing import Any, Optional

from ..container import in_container
from ..kernel_files import text

# adjtimex(2): the kernel sets this bit until something has set the clock by another one.
STA_UNSYNC = 0x0040


class _Timex(ctypes.Structure):
    # The fields up to status; the kernel writes 208 bytes, and older ones fewer.
    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("max_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_ubyte * 256),
    ]


def clock_synchronised() -> Optional[bool]:
    """Tell whether the kernel counts its clock as set by another; None where it does not say."""
    state = _Timex()
    # Mode 0 only reads, so it needs no privileges.
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) < 0:
        return None
    return not state.status & STA_UNSYNC


def glibc() -> str:
    """Return the version of the C library, or nothing where it is another one."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return ""
    return version if name == "glibc" else ""


def look(root: Path = Path("/")) -> dict[str, Any]:
    """Return what the system is; the page size is in bytes."""
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "glibc": glibc(),
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        # AWS writes the machine type here; other clouds and vendors write a model.
        "product": text(root / "sys/devices/virtual/dmi/id/product_name"),
        "container": in_container(root),
        "clock_synchronised": clock_synchronised(),
        "compiler": shutil.which("cc") or "",
        "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    }
