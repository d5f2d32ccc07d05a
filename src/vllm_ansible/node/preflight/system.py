"""Versions, page size, compiler, machine type and clock of a host."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import sysconfig
from pathlib import Path
from typing import Any, Optional

from ..accelerators.catalogue import PLATFORMS
from ..container import in_container
from ..kernel_files import names, text

# adjtimex(2): the kernel sets this bit until something has set the clock by another one.
STA_UNSYNC = 0x0040
# Of PCI: the class of display controllers, which accelerators are too.
DISPLAY = "0x03"


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


def iommu(root: Path = Path("/")) -> str:
    """Return what the IOMMU does to devices that copy to each other.

    `off`, or whether it `passes` or `translates` addresses.

    Nothing where there is no such device, or where the kernel does not say.
    """
    devices = root / "sys/bus/pci/devices"
    vendors = [one.vendor for one in PLATFORMS if one.iommu_matters]
    groups = [
        text(devices / name / "iommu_group/type")
        for name in names(devices)
        if text(devices / name / "vendor") in vendors
        and text(devices / name / "class").startswith(DISPLAY)
    ]
    if not groups:
        return ""
    if not names(root / "sys/kernel/iommu_groups"):
        return "off"
    if not all(groups):
        return ""
    return "passes" if set(groups) == {"identity"} else "translates"


def virtual(root: Path = Path("/")) -> Optional[bool]:
    """Tell whether this is a virtual machine; None on processors that do not say."""
    found = re.search(r"^flags\s*:(.*)$", text(root / "proc/cpuinfo"), re.MULTILINE)
    return "hypervisor" in found[1].split() if found else None


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
        "virtual": virtual(root),
        "iommu": iommu(root),
        "clock_synchronised": clock_synchronised(),
        "compiler": shutil.which("cc") or "",
        "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    }
