"""The disks that come and go with an instance of AWS: which of them may be made one file system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

MODEL = "Amazon EC2 NVMe Instance Storage"
# Of a file system that is ours; XFS gives a label 12 bytes.
LABEL = "vllm-store"
ARRAY = f"/dev/md/{LABEL}"
COLUMNS = "PATH,TYPE,MODEL,SIZE,FSTYPE,PTTYPE,LABEL,MOUNTPOINT"
LIST = ("--json", "--bytes", "--output", COLUMNS)
Disk = Mapping[str, Any]


def disks(listed: Mapping[str, Any]) -> list[Disk]:
    """Return the disks of the instance store from what `lsblk` says as JSON, in its order.

    No other disk is ever looked at again: EBS volumes have another model.
    """
    return [
        one
        for one in listed.get("blockdevices", [])
        if one.get("type") == "disk" and str(one.get("model") or "").strip() == MODEL
    ]


def below(disk: Disk) -> list[Disk]:
    """Return everything that lies on a disk: partitions, arrays, volumes, and what is on these."""
    found = []
    for child in disk.get("children") or []:
        found += [child, *below(child)]
    return found


def mounted(found: Sequence[Disk], path: str) -> tuple[list[Disk], bool]:
    """Return the disks below what is mounted at a path, and whether that is of our making."""
    parts = [(disk, one) for disk in found for one in (disk, *below(disk))]
    here = [(disk, one) for disk, one in parts if one.get("mountpoint") == path.rstrip("/")]
    under = [disk for disk in found if any(disk is other for other, _ in here)]
    return under, any(one.get("label") == LABEL for _, one in here)


def ours(found: Sequence[Disk]) -> Optional[str]:
    """Return the device of a file system of ours on these disks, after a boot; None without one."""
    for one in [part for disk in found for part in (disk, *below(disk))]:
        if one.get("fstype") == "xfs" and one.get("label") == LABEL and not one.get("mountpoint"):
            return str(one["path"])
    return None


def used(disk: Disk, signatures: str) -> str:
    """Return what a disk holds, in words; empty where it holds nothing at all.

    signatures: what `wipefs --no-act` finds on the disk itself, whatever the kernel knows of it.
    """
    parts = below(disk)
    mounted = [one["mountpoint"] for one in (disk, *parts) if one.get("mountpoint")]
    if mounted:
        return f"mounted at {', '.join(mounted)}"
    if parts:
        return f"part of {', '.join(str(one['path']) for one in parts)}"
    for name, what in (("fstype", "a file system"), ("pttype", "a partition table")):
        if disk.get(name):
            return f"{what} ({disk[name]})"
    kinds = sorted({line.split(",")[-1] for line in signatures.splitlines() if _signature(line)})
    return f"a signature ({', '.join(kinds)})" if kinds else ""


def _signature(line: str) -> bool:
    """Tell whether a line of `wipefs --parsable` is one of a signature."""
    return bool(line.strip()) and not line.startswith("#")


def commands(found: Sequence[Disk]) -> tuple[str, list[list[str]]]:
    """Return the device and the commands that make one file system of empty disks.

    Nothing is forced: mdadm and mkfs.xfs refuse by themselves what came in between.
    """
    paths = [str(one["path"]) for one in found]
    if len(paths) == 1:
        return paths[0], [["mkfs.xfs", "-q", "-L", LABEL, paths[0]]]
    create = ["mdadm", "--create", ARRAY, "--level=0", f"--raid-devices={len(paths)}"]
    return ARRAY, [
        # Any host may assemble it again after a boot, whatever its name is then.
        [*create, "--homehost=any", *paths],
        ["mkfs.xfs", "-q", "-L", LABEL, ARRAY],
    ]
