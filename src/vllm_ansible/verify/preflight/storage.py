"""Room and file systems: free space, options, a real write, and caches that stay on the host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vllm_ansible.verify.preflight.check import FAIL, PASS, WARN, Check, Cluster, Row, gib

DISK = Check("disk", "free disk space", "logs, caches and weights end in half a file")
INODES = Check("inodes", "free inodes", "no file can be made although there is space")
NFS = Check("nfs_options", "options of NFS mounts", "soft mounts lose data; locks need the server")
WRITE = Check("write", "write, fsync, flock and rename", "a cache that cannot be locked ends ranks")
CACHES = Check(
    "jit_cache", "where compiled kernels are kept", "ranks race for one cache over a network"
)
CHECKS = (DISK, INODES, NFS, WRITE, CACHES)
# Kubernetes evicts from a node below these (nodefs.available and nodefs.inodesFree); a large disk
# needs no tenth: what the stage prepare asks for is enough.
LEAST_SHARE, LEAST_INODES, ENOUGH_GIB = 0.10, 0.05, 8
# What purposes of the caches begin with.
CACHE = "cache "


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all hosts."""
    found = []
    for host in cluster.hosts:
        places = cluster.looks[host]["storage"]
        found += [_disk(host, places), _inodes(host, places), _nfs(host, places)]
        found += [_write(host, places), _caches(host, places)]
    return found


def _apart(places: Mapping[str, Any]) -> list[Any]:
    """Return one place of each file system, so that one that is full is told once."""
    return list({place["point"]: place for place in reversed(list(places.values()))}.values())


def _disk(host: str, places: Mapping[str, Any]) -> Row:
    least = {
        place["point"]: min(LEAST_SHARE * place["size"], ENOUGH_GIB * (1 << 30))
        for place in _apart(places)
    }
    short = [place for place in _apart(places) if place["free"] < least[place["point"]]]
    shown = short or sorted(_apart(places), key=lambda place: int(place["free"]))[:1]
    told = "; ".join(f"{gib(one['free'])} of {gib(one['size'])} at {one['path']}" for one in shown)
    wanted = f"{LEAST_SHARE:.0%}, or {ENOUGH_GIB} GiB"
    fix = f"du -xh --max-depth 1 {shown[0]['point']} | sort -h; free some, or move cluster_dir"
    return DISK.judged(FAIL if short else PASS, host, wanted, told, fix)


def _inodes(host: str, places: Mapping[str, Any]) -> Row:
    counted = [place for place in _apart(places) if place["inodes"]]
    if not counted:
        return INODES.skipped(host, "these file systems have no fixed number of inodes")
    least = min(counted, key=lambda place: place["inodes_free"] / place["inodes"])
    short = least["inodes_free"] < LEAST_INODES * least["inodes"]
    told = f"{least['inodes_free']} of {least['inodes']} at {least['path']}"
    fix = f"du --inodes -x --max-depth 1 {least['point']} | sort -n; remove small files there"
    return INODES.judged(FAIL if short else PASS, host, f"{LEAST_INODES:.0%}", told, fix)


def nfs_faults(options: str) -> tuple[list[str], list[str]]:
    """Return what is wrong, and what is slow, in the options of an NFS mount."""
    words = options.split(",")
    given = dict(word.partition("=")[::2] for word in words)
    wrong = [word for word in words if word in ("soft", "nolock")]
    if given.get("local_lock", "none") != "none":
        wrong.append(f"local_lock={given['local_lock']}")
    slow = [word for word in words if word == "noac"]
    version = given.get("vers") or given.get("nfsvers", "")
    if version and [int(part) for part in re.findall(r"\d+", version)] < [4, 1]:
        slow.append(f"vers={version}")
    return wrong, slow


def _nfs(host: str, places: Mapping[str, Any]) -> Row:
    mounted = [place for place in _apart(places) if place["kind"] in ("nfs", "nfs4")]
    if not mounted:
        return NFS.skipped(host, "nothing here is on NFS")
    wanted = "hard, vers=4.1 or later, locks at the server, no noac"
    found, verdict = [], PASS
    for place in mounted:
        wrong, slow = nfs_faults(place["options"])
        verdict = FAIL if wrong else WARN if slow and verdict == PASS else verdict
        if wrong or slow:
            found.append(f"{' '.join(wrong + slow)} at {place['point']}")
    point = mounted[0]["point"]
    fix = f"umount {point} && mount -o hard,vers=4.2 {mounted[0]['source']} {point}, and in fstab"
    told = "; ".join(found) or f"as wanted at {', '.join(one['point'] for one in mounted)}"
    return NFS.judged(verdict, host, wanted, told, fix)


def _write(host: str, places: Mapping[str, Any]) -> Row:
    tried = [place for place in places.values() if place["write"] is not None]
    if not tried:
        return WRITE.skipped(host, "check mode writes nothing, or no directory is made yet")
    bad = [place for place in tried if place["write"].get("error")]
    told = "; ".join(
        f"{one['write']['step']} as {one['write']['user'] or 'the login'} in {one['path']}: "
        f"{one['write']['error']}"
        for one in bad
    )
    done = f"done in {', '.join(one['path'] for one in tried)}"
    path = (bad or tried)[0]["path"]
    fix = f"namei -l {path}; findmnt -T {path}: mind root_squash, ro, quotas and a full file system"
    return WRITE.judged(FAIL if bad else PASS, host, "all four succeed", told or done, fix)


def _caches(host: str, places: Mapping[str, Any]) -> Row:
    caches = {key: place for key, place in places.items() if key.startswith(CACHE)}
    if not caches:
        return CACHES.skipped(host, "no engine keeps compiled kernels here")
    bad = [place for place in caches.values() if place["network"]]
    told = "; ".join(f"{one['path']} on {one['kind']} from {one['source']}" for one in bad)
    good = ", ".join(sorted({str(one["kind"]) for one in caches.values()}))
    fix = (
        "set cluster_dir to a local disk, or in the engine's environment TRITON_CACHE_DIR, "
        "TORCHINDUCTOR_CACHE_DIR and VLLM_CACHE_ROOT"
    )
    return CACHES.judged(
        FAIL if bad else PASS, host, "a file system of this host", told or good, fix
    )
