"""What of a file the kernel holds in memory."""

from __future__ import annotations

import ctypes
import mmap
import os


def resident_bytes(handle: int, offset: int, size: int) -> int:
    """Return how many bytes of a part of an open file are in memory, in whole pages.

    offset is a multiple of mmap.ALLOCATIONGRANULARITY.
    """
    if not size:
        return 0
    pages = -(-size // mmap.PAGESIZE)
    resident = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    # Private and for writing, because ctypes takes the address of nothing else; never written to.
    with mmap.mmap(handle, size, access=mmap.ACCESS_COPY, offset=offset) as view:
        start = ctypes.c_char.from_buffer(view)
        status = libc.mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), resident
        )
        del start
    if status != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return sum(one & 1 for one in resident) * mmap.PAGESIZE


def is_shown(path: str) -> bool:
    """Tell whether the kernel says what of a file is in memory.

    Since Linux 5.2 who neither owns a file nor may write to it is told that all of it is.
    """
    return os.geteuid() in (0, os.stat(path).st_uid) or os.access(path, os.W_OK)
