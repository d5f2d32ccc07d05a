"""Decide what a host mounts, from where and with which options, and whether it can be cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]

# hard: a read waits for a server that is away, where soft would hand half a file to an engine.
# noatime: reading must not write.
OPTIONS = "vers=4.2,hard,noatime"
# _netdev: not before the network. nofail: a host whose server is away still boots, and can be
# logged in to.
OF_FSTAB = ("_netdev", "nofail")
# By program that is needed: its package on Debian, and on Red Hat.
PACKAGES = {
    "mount.nfs": ("nfs-common", "nfs-utils"),
    "exportfs": ("nfs-kernel-server", "nfs-utils"),
    "cachefilesd": ("cachefilesd", "cachefilesd"),
}
NOT_WANTED = "nfs_cache_directory is empty: none is wanted"


@dataclass(frozen=True)
class Given:
    """The variables of the role by which it is decided; limits are in percent."""

    path: str
    export: str
    server: str
    options: str
    directory: str
    mode: str
    limits: Mapping[str, Any]
    minimum_free_gib: float
    required: bool


def plan(look: Facts, host: Facts, hosts: Sequence[Facts], given: Facts) -> dict[str, Any]:
    """Return what one host is to be.

    serves and manages say what is done; source, options and kind what is mounted (source is empty
    where nobody said it); caches whether it is cached, and why_not the reason against; packages
    are those that are missing.
    """
    want = Given(**given)
    root = host["privileges"] == "root"
    serves = want.server == host["name"]
    why_not = look["cache"] if want.directory else NOT_WANTED
    line = look["fstab"] or {}
    kind = (look["mount"] or line).get("kind", "nfs")
    foreign = not serves and not kind.startswith("nfs")
    if foreign:
        why_not = f"{want.path} is a mount of {kind}, which this cache is not for"
    caches = not serves and not why_not
    return {
        "serves": serves,
        "manages": not foreign and root and want.mode in ("auto", "manage"),
        "source": source(look, hosts, want),
        "kind": line.get("kind", "nfs"),
        "options": options(want.options or line.get("options", "") or OPTIONS, caches),
        "caches": caches,
        "why_not": "" if serves else why_not,
        "packages": packages(look["programs"], host, serves, caches),
    }


def packages(programs: Facts, host: Facts, serves: bool, caches: bool) -> list[str]:
    """Return the packages of the programs that a host needs and has not."""
    needed = ["exportfs"] if serves else ["mount.nfs", *(["cachefilesd"] if caches else [])]
    red_hat = host["distribution"] not in ("debian", "ubuntu")
    return sorted({PACKAGES[name][red_hat] for name in needed if not programs[name]})


def source(look: Facts, hosts: Sequence[Facts], want: Given) -> str:
    """Return what is mounted, as server:/path; empty where nobody says it."""
    if want.export:
        return want.export
    addresses = [str(one["address"]) for one in hosts if one["name"] == want.server]
    if addresses:
        return f"{addresses[0]}:{want.path}"
    # A provider's own mount, or a server that --limit leaves out.
    return str((look["mount"] or look["fstab"] or {"source": ""})["source"])


def options(asked: str, caches: bool) -> str:
    """Return the options of fstab: those asked for, with the cache's and those of booting."""
    # What was added before is asked for again, and must not wander.
    ours = ("fsc", *OF_FSTAB)
    words = [word for word in asked.split(",") if word and word not in (*ours, "defaults")]
    return ",".join([*words, *(ours if caches else OF_FSTAB)])
