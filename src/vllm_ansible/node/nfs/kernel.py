"""What the running kernel can: mount NFS, serve it, cache it. Found by trying, not by names."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

from ..kernel_files import text
from ..system.tool import Tools

# CONFIG_NFS_FSCACHE is a part of NFS itself: with the others alone, `fsc` does nothing.
NEEDED = ("CONFIG_FSCACHE", "CONFIG_CACHEFILES", "CONFIG_NFS_FSCACHE")


def lacks(kind: str, tools: Tools, load: bool, root: Path = Path("/")) -> str:
    """Return why this kernel has no file system of a kind (nfs, nfsd); empty where it has.

    load says whether modules are loaded, as mounting would, or only found.
    """
    if has_file_system(kind, root):
        return ""
    refused = modprobe(kind, tools, load)
    if refused or not load or has_file_system(kind, root):
        return refused
    return f"the module {kind} is loaded, but the kernel knows no file system {kind}"


def lacks_cache(tools: Tools, load: bool, root: Path = Path("/")) -> str:
    """Return why this kernel cannot cache what it reads by NFS; empty where it can."""
    built = built_with(config(root))
    unset = [name for name in NEEDED if built and name not in built]
    if unset:
        return f"the kernel {os.uname().release} was built without {', '.join(unset)}"
    # By its table of caches the role tells what the daemon does; Linux has it since 5.17.
    needed = (root / "dev/cachefiles", root / "proc/fs/fscache/caches")
    if all(one.exists() for one in needed):
        return ""
    refused = modprobe("cachefiles", tools, load)
    if refused or not load:
        return refused
    missing = [f"/{one.relative_to(root)}" for one in needed if not one.exists()]
    if not missing:
        return ""
    without = " and no ".join(missing)
    return f"cachefiles is loaded into the kernel {os.uname().release}, but there is no {without}"


def has_file_system(kind: str, root: Path) -> bool:
    """Tell whether the kernel knows a file system."""
    return any(line.split()[-1:] == [kind] for line in text(root / "proc/filesystems").splitlines())


def modprobe(name: str, tools: Tools, load: bool) -> str:
    """Load a module, or only look for it; return why that cannot be."""
    program = tools.find("modprobe")
    if program is None:
        return f"the kernel has no {name} yet, and there is no modprobe to load it"
    status, _, said = tools.run([program, *([] if load else ["--dry-run"]), name])
    if status == 0:
        return ""
    why = " ".join(said.split()) or f"exit status {status}"
    return f"the kernel {os.uname().release} has no module {name}: {why}"


def config(root: Path) -> str:
    """Return what the kernel was built with, where it tells; empty where it does not."""
    written = text(root / f"boot/config-{os.uname().release}")
    if written:
        return written
    try:
        return gzip.decompress((root / "proc/config.gz").read_bytes()).decode(errors="replace")
    except OSError:
        return ""


def built_with(written: str) -> set[str]:
    """Return the names that a kernel's configuration sets to yes or to a module."""
    return set(re.findall(r"^(CONFIG_\w+)=[ym]$", written, re.MULTILINE))
