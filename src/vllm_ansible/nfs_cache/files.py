"""The files of the cache's daemon and of the server, rendered whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

HEADER = "# Written by vllm-ansible; see docs/nfs_cache.md. Changes here are lost.\n"
# cachefilesd.conf(5) gives this label; it means something to SELinux alone.
LABEL = "secctx system_u:system_r:cachefiles_kernel_t:s0\n"
# With its digest it has 13 characters; of more than 15, one of the kernel's tables shows the first.
TAG = "vllm"
# As Debian's package comes.
LIMITS = {"brun": 10, "bcull": 7, "bstop": 3, "frun": 10, "fcull": 7, "fstop": 3}


def all_limits(given: Mapping[str, Any]) -> dict[str, int]:
    """Return every limit in percent of blocks (b...) and files (f...), as given or as it is."""
    return {**LIMITS, **{name: int(value) for name, value in given.items()}}


def cachefilesd_conf(directory: str, given: Mapping[str, Any], selinux: bool) -> str:
    """Return /etc/cachefilesd.conf; given are limits that differ from Debian's."""
    limits = all_limits(given)
    shares = "".join(f"{name} {limits[name]}%\n" for kind in "bf" for name in order(kind, limits))
    text = f"dir {directory}\n{shares}{LABEL if selinux else ''}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{HEADER}tag {TAG}-{digest}\n{text}"


def order(kind: str, limits: Mapping[str, int]) -> list[str]:
    """Return the names of a kind of limits in an order in which the kernel takes them.

    It compares each line with what it has by then, which is at first 7, 5 and 1 for run, cull and
    stop (fs/cachefiles/daemon.c), and refuses the whole file where one is out of order.
    """
    names = [f"{kind}run", f"{kind}cull", f"{kind}stop"]
    rising = limits[names[0]] > 5 and limits[names[1]] > 1
    return names if rising else names[::-1]


def tag_of(conf: str) -> str:
    """Return the tag of a configuration, by which the kernel tells which one its cache has."""
    return conf.partition("\ntag ")[2].partition("\n")[0]


def limits_faults(limits: Mapping[str, int]) -> list[str]:
    """Return where limits break 0 <= stop < cull < run < 100 (cachefilesd.conf(5))."""
    found = []
    for kind in ("b", "f"):
        stop, cull, run = (limits[f"{kind}{name}"] for name in ("stop", "cull", "run"))
        if not 0 <= stop < cull < run < 100:
            found.append(f"{kind}stop {stop}, {kind}cull {cull}, {kind}run {run}")
    return found


def exports(path: str, name: str, hosts: Sequence[Mapping[str, Any]], no_root_squash: bool) -> str:
    """Return the exports of a server: to the data-plane addresses of its peers and nobody else."""
    squash = "no_root_squash" if no_root_squash else "root_squash"
    clients = [
        f"{one['address']}(rw,sync,no_subtree_check,{squash})"
        for one in sorted(hosts, key=lambda one: str(one["name"]))
        if one["name"] != name
    ]
    return f"{HEADER}{' '.join([path, *clients])}\n" if clients else HEADER
