"""NVIDIA devices as their driver shows them without starting CUDA: who holds what, and health."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from pathlib import Path
from typing import Any, Optional

from ..accelerators import nvml, xid
from ..kernel_files import text
from . import ours

NOT_SUPPORTED_MEMORY = 0xFFFFFFFFFFFFFFFF
MOST_PROCESSES = 256


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Process(ctypes.Structure):
    # nvmlProcessInfo_t of version 3 of the call.
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("bus", ctypes.c_char * 32),
    ]


def library() -> Any:
    """Return NVIDIA's management library, ready to be asked, or why it is not as text."""
    try:
        found = ctypes.CDLL(nvml.LIBRARY)
    except OSError:
        return f"{nvml.LIBRARY} is not installed"
    status = found.nvmlInit_v2()
    if status == 0:
        return found
    found.nvmlErrorString.restype = ctypes.c_char_p
    return f"nvmlInit_v2: {found.nvmlErrorString(status).decode()}"


def peer_memory(root: Path = Path("/")) -> dict[str, bool]:
    """Tell by what RDMA cards reach device memory: the peer module, or DMA-BUF of open modules."""
    return {
        "module": (root / "sys/module/nvidia_peermem").is_dir(),
        "open": "Open Kernel Module" in text(root / "proc/driver/nvidia/version"),
    }


def look(known: Collection[int]) -> dict[str, Any]:
    """Return versions, devices with memory in bytes and who holds it, and errors of the kernel log.

    `error` instead says why the driver did not answer. known are the processes of the cluster.
    """
    shared = {"kernel_log": xid.log_errors(), "peer_memory": peer_memory()}
    found = library()
    if isinstance(found, str):
        return {**shared, "error": found, "devices": []}
    version, cuda, count = ctypes.create_string_buffer(80), ctypes.c_int(), ctypes.c_uint()
    found.nvmlSystemGetDriverVersion(version, 80)
    found.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda))
    found.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return {
        **shared,
        "driver": version.value.decode(),
        "cuda": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
        "devices": [device(found, index, known) for index in range(count.value)],
    }


def device(asked: Any, index: int, known: Collection[int]) -> dict[str, Any]:
    """Return one device; `error` where the driver lists but does not open it."""
    handle, pci, memory = ctypes.c_void_p(), _Pci(), _Memory()
    if asked.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return {"index": index, "error": "the driver lists it but does not open it"}
    asked.nvmlDeviceGetPciInfo_v3(handle, ctypes.byref(pci))
    asked.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    major, minor = ctypes.c_int(), ctypes.c_int()
    asked.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    name, firmware = ctypes.create_string_buffer(96), ctypes.create_string_buffer(32)
    asked.nvmlDeviceGetName(handle, name, 96)
    asked.nvmlDeviceGetVbiosVersion(handle, firmware, 32)
    bus = pci.bus.decode()
    return {
        "index": index,
        "name": name.value.decode(),
        "pci": bus,
        "firmware": firmware.value.decode(),
        "compute": f"{major.value}.{minor.value}",
        "memory": {"total": memory.total, "free": memory.free, "used": memory.used},
        "processes": processes(asked, handle, known),
        **nvml.Nvml(bus).health(),
    }


def processes(asked: Any, handle: Any, known: Collection[int]) -> Optional[list[dict[str, Any]]]:
    """Return who computes on a device with how many bytes; None where the driver does not say."""
    call = getattr(asked, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    count, found = ctypes.c_uint(MOST_PROCESSES), (_Process * MOST_PROCESSES)()
    if call is None or call(handle, ctypes.byref(count), found) != 0:
        return None
    return [
        {
            **ours.describe(one.pid),
            "bytes": None if one.used == NOT_SUPPORTED_MEMORY else one.used,
            "ours": one.pid in known,
        }
        for one in found[: count.value]
    ]
