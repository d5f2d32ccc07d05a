"""Everything the controller decides from, in one look at a host."""

from __future__ import annotations

import ctypes.util
import getpass
import json
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..accelerators import accelerator
from ..slurm.site_environment import site_environment
from . import efa_cards as efa
from . import network

# Where a cluster's directory lies unless its inventory says so, by the privileges it is made with.
PLACES = {"root": "/opt/vllm-ansible", "none": "~/.local/share/vllm-ansible"}


def os_release(path: str = "/etc/os-release") -> dict[str, str]:
    """Return the fields of os-release by name, unquoted."""
    fields = {}
    for line in Path(path).read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator:
            fields[name] = value.strip().strip("\"'")
    return fields


def has_sudo() -> bool:
    """Tell whether this user may become root without being asked for a password."""
    sudo = shutil.which("sudo")
    if not sudo:
        return False
    done = subprocess.run(  # noqa: S603 - found on PATH, fixed arguments
        [sudo, "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode == 0


def memory_bytes(meminfo: str = "/proc/meminfo") -> int:
    """Return the memory of this host in bytes."""
    lines = Path(meminfo).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:")) * 1024


def existing_parent(path: str) -> str:
    """Return the path itself or its nearest parent that exists."""
    # Unlike Path.exists, this does not fail below a directory that is closed to this user.
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."
    return path


def disk_free(path: str) -> dict[str, int]:
    """Return the free bytes where a path is or will be, by privileges: those choose one of ours."""
    places = {privileges: path or place for privileges, place in PLACES.items()}
    return {
        privileges: shutil.disk_usage(existing_parent(os.path.expanduser(place))).free
        for privileges, place in places.items()
    }


def missing_libraries(names: list[str]) -> list[str]:
    """Return those of the named shared libraries that the loader does not find."""
    return [name for name in names if ctypes.util.find_library(name) is None]


def cuda_toolkit(home: str = "/usr/local/cuda") -> str:
    """Return the release of the CUDA toolkit that builds find here; nothing without one."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        version = json.loads(Path(home, "version.json").read_text())["cuda"]["version"]
        return ".".join(str(version).split(".")[:2])
    nvcc = shutil.which("nvcc")
    if not nvcc:
        return ""
    done = subprocess.run(  # noqa: S603 - found on PATH, fixed arguments
        [nvcc, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    found = re.search(r"release (\d+\.\d+)", done.stdout)
    return found[1] if found else ""


def look(disk_path: str, libraries: list[str]) -> dict[str, Any]:
    """Return the facts of this host; sizes in bytes, free space for disk_path or for our places."""
    release = os_release()
    return {
        "uid": os.getuid(),
        "user": getpass.getuser(),
        "home": str(Path.home()),
        "sudo": os.getuid() != 0 and has_sudo(),
        "pid1": Path("/proc/1/comm").read_text().strip(),
        "architecture": platform.machine(),
        "distribution": release.get("ID", ""),
        "distribution_version": release.get("VERSION_ID", ""),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes(),
        "disk_free": disk_free(disk_path),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "addresses": network.addresses(),
        "site_environment": site_environment(os.environ),
        "accelerators": accelerator.accelerators(),
        "efa": efa.look(),
        "missing_libraries": missing_libraries(libraries),
        "has_venv": find_spec("ensurepip") is not None,
        "cuda_toolkit": cuda_toolkit(),
        "has_compiler": shutil.which("cc") is not None,
        "has_python_headers": os.path.exists(
            os.path.join(sysconfig.get_path("include"), "Python.h")
        ),
    }
