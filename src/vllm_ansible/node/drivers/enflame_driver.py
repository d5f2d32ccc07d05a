"""All that is decided about Enflame's driver on a host, in one look that needs no root."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path
from typing import Any, Callable

from ..accelerators import enflame
from ..accelerators.accelerator import pci_devices
from ..accelerators.platforms.enflame import PLATFORM
from ..kernel_files import names, number, text

Run = Callable[[list[str]], "tuple[int, str]"]
# The bit of linux/capability.h.
CAP_SYS_MODULE = 16
MODULE, PEER_MODULE = "enflame", "enflame_peer_mem"
# Any of these says that network cards reach device memory: epIbGdrSupport in Enflame's DeepEP.
PEER_MEMORY = (
    "sys/kernel/mm/memory_peers/enflame_peer_mem/version",
    "sys/module/enflame_peer_mem/version",
    "sys/bus/pci/drivers/enflame/peermem_client_version",
)
# Written before the installer runs and removed after it ended well: what is left half done is seen.
MARK = "var/lib/vllm-ansible/enflame_driver.json"


def look(run: Run, root: str = "/", in_use: bool = False) -> dict[str, Any]:
    """Return the facts of a host's driver; only `present` where the bus shows no Enflame device.

    in_use also looks for processes that hold a device, which reads all files that are open; without
    root only those of its own user are seen.
    """
    top = Path(root)
    on_bus = pci_devices(PLATFORM.vendor, top / "sys/bus/pci/devices")
    if not on_bus:
        return {"present": False, "devices": []}
    release = platform.release()
    loaded = text(top / "sys/module" / MODULE / "version")
    return {
        "present": True,
        "devices": on_bus,
        "kernel": release,
        "headers": (top / "lib/modules" / release / "build").exists(),
        "loaded": loaded,
        "references": number(top / "sys/module" / MODULE / "refcnt") or 0,
        "holders": names(top / "sys/module" / MODULE / "holders"),
        "peer_memory": any((top / one).exists() for one in PEER_MEMORY),
        "installed": installed(run, release, MODULE),
        "peer_installed": installed(run, release, PEER_MODULE),
        "other_kernels": other_kernels(top, release),
        "rdma": names(top / "sys/class/infiniband"),
        "tool_installed": enflame.place() is not None,
        "tool": enflame.tool_version(enflame.ask()) if loaded else "",
        "answering": len(enflame.devices(enflame.ask("-q"))) if loaded else 0,
        "begun": begun(top),
        "may_load": may_load(top),
        "users": users(top) if in_use else [],
    }


def installed(run: Run, release: str, module: str) -> str:
    """Return the version of the module that the running kernel would load; empty without one."""
    status, output = run(["modinfo", "-k", release, "-F", "version", module])
    return output.strip() if status == 0 else ""


def other_kernels(root: Path, release: str) -> list[str]:
    """Return the kernels that a module of the driver was built for, but for the running one."""
    modules = root / "lib/modules"
    return [kernel for kernel in names(modules) if kernel != release and _holds(modules / kernel)]


def _holds(directory: Path) -> bool:
    name = re.compile(r"enflame\.ko(\.\w+)?")
    return any(name.fullmatch(one) for _, _, files in os.walk(directory) for one in files)


def begun(root: Path) -> dict[str, str]:
    """Return what a run began to install and did not end; nothing where all was ended."""
    if not (root / MARK).exists():
        return {}
    try:
        found = json.loads(text(root / MARK))
    except ValueError:
        # The run died while it wrote, or only root may read it.
        return {"version": "", "sha256": ""}
    return {name: str(found[name]) for name in ("version", "sha256")}


def may_load(root: Path) -> bool:
    """Tell whether this process may load modules: root of most containers may not."""
    status = text(root / "proc/self/status")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> CAP_SYS_MODULE & 1)


def users(root: Path) -> list[str]:
    """Return name and number of each process that holds a device open."""
    return sorted(f"{name} ({pid})" for pid, (name, _) in holding(root).items())


def holding(root: Path) -> dict[int, tuple[str, list[int]]]:
    """Return name and device numbers of each process that holds a file of the driver open."""
    found = {}
    for process in (root / "proc").glob("[0-9]*"):
        held = _held(process)
        # Who holds /dev/gcuctl alone keeps the module in the kernel, too.
        if any(one.startswith("/dev/gcu") for one in held):
            numbers = [enflame.NODE.fullmatch(one) for one in held]
            mine = sorted(int(one[1]) for one in numbers if one)
            found[int(process.name)] = (text(process / "comm"), mine)
    return found


def _held(process: Path) -> set[str]:
    """Return what a process holds open; nothing of one that ended or that is not ours to see."""
    found: set[str] = set()
    for descriptor in names(process / "fd"):
        try:
            found.add(os.readlink(process / "fd" / descriptor))
        except OSError:
            # An engine closes sockets all the time; its devices are still to be seen.
            continue
    return found
