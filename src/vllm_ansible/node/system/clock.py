"""Whether something keeps the clock, asked of the kernel itself."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path
from typing import Any

from ..kernel_files import text

DAEMONS = ("chronyd", "systemd-timesyn", "ntpd", "openntpd", "phc2sys", "ptp4l")
CAP_SYS_TIME = 25  # include/uapi/linux/capability.h
STA_UNSYNC = 0x0040  # include/uapi/linux/timex.h


class _Timex(ctypes.Structure):
    """The beginning of struct timex; the kernel fills the rest into the padding."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("padding", ctypes.c_long * 64),
    ]


def look(root: Path = Path("/")) -> dict[str, Any]:
    """Return whether the kernel counts its clock as synchronised, and who keeps it."""
    libc = ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6", use_errno=True)
    state = _Timex()  # modes 0 only reads
    answered = libc.adjtimex(ctypes.byref(state)) != -1
    names = {text(path) for path in (root / "proc").glob("[0-9]*/comm")}
    return {
        "synchronised": answered and not state.status & STA_UNSYNC,
        "maximum_error_microseconds": state.maxerror,
        "daemons": sorted(name for name in names if name in DAEMONS),
        "settable": may_set(text(root / "proc/self/status")),
    }


def may_set(status: str) -> bool:
    """Tell whether root may set the clock here: rented containers are not given that right."""
    words = [line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:")]
    return not words or bool(int(words[0], 16) >> CAP_SYS_TIME & 1)
