"""All that is decided about NVIDIA's driver on a host, in one look that needs no root."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from ..accelerators.accelerator import withheld
from ..accelerators.platforms.nvidia import PLATFORM
from ..container import in_container
from . import kernel
from .packages import Run, manager, packages

# Each service with the process behind it, for hosts whose first process is no systemd.
SERVICES = {
    "nvidia-fabricmanager": "nv-fabricmanage",
    "nvidia-dcgm": "nv-hostengine",
    "nvidia-persistenced": "nvidia-persiste",
}
REPOSITORIES = (
    *("etc/apt/sources.list", "etc/apt/sources.list.d/*.list"),
    *("etc/apt/sources.list.d/*.sources", "etc/yum.repos.d/*.repo"),
)


def look(run: Run, root: str = "/", in_use: bool = False) -> dict[str, Any]:
    """Return the facts of a host's driver; only `present` where the bus shows no NVIDIA device.

    in_use also looks for processes that hold a device, which reads all that are open.
    """
    top = Path(root)
    devices = kernel.devices(top)
    if not devices:
        return {"present": False, "devices": []}
    release = platform.release()
    kind = manager(top)
    return {
        "present": True,
        "devices": devices,
        "withheld": withheld(len(devices), PLATFORM.device_file, top),
        "models": kernel.models(top),
        "switches": kernel.switches(top),
        "kernel": release,
        "module": kernel.module(top, release),
        "library": kernel.library(top),
        "manager": kind,
        **packages(top, kind, run),
        "services": services(top, run),
        **kernel.fabric(top),
        "container": in_container(top),
        "boot_id": kernel.read(top / "proc/sys/kernel/random/boot_id"),
        "repository": repositories(top),
        "users": kernel.users(top) if in_use else [],
    }


def repositories(root: Path) -> dict[str, str]:
    """Return the files that may say where driver packages come from, by their paths on the host."""
    found = {}
    for pattern in REPOSITORIES:
        for path in sorted(root.glob(pattern)):
            text = kernel.read(path)
            if "nvidia" in text or "cuda" in text:
                found["/" + str(path.relative_to(root))] = text + "\n"
    return found


def services(root: Path, run: Run) -> dict[str, dict[str, bool]]:
    """Return for each service of the driver whether it is there, runs and starts at boot."""
    if (root / "run/systemd/system").is_dir():
        wanted = "--property=Id,LoadState,ActiveState,UnitFileState"
        status, text = run(["systemctl", "show", wanted, *SERVICES])
        if status == 0:
            return parse_services(text)
    names = kernel.running(root)
    return {
        service: {"exists": process in names, "active": process in names, "enabled": True}
        for service, process in SERVICES.items()
    }


def parse_services(text: str) -> dict[str, dict[str, bool]]:
    """Return the state of each unit that `systemctl show` described, by its name without suffix."""
    found = {}
    for block in text.split("\n\n"):
        said = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in said:
            found[said["Id"].rsplit(".", 1)[0]] = {
                "exists": said.get("LoadState") == "loaded",
                "active": said.get("ActiveState") == "active",
                "enabled": said.get("UnitFileState") in ("enabled", "static"),
            }
    return found
