#!/usr/bin/env python3
"""Hold memory of the first NVIDIA device until standard input ends: stranger.py GIB."""

from __future__ import annotations

import ctypes
import sys


def main() -> None:
    """Take the memory, print one line, and wait."""
    wanted = int(float(sys.argv[1]) * 2**30)
    driver = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    for name, *given in (
        ("cuInit", 0),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0),
        ("cuCtxSetCurrent", context),
        ("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(wanted)),
    ):
        if code := getattr(driver, name)(*given):
            sys.exit(f"stranger: {name} fails with code {code}")
    print(f"holds {wanted} bytes", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
