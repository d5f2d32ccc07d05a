"""What is measured before a host is touched, and what its proof is worth afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.nfs_cache.files import all_limits, cachefilesd_conf, limits_faults, tag_of
from vllm_ansible.nfs_cache.plan import Given
from vllm_ansible.node.nfs.mounts import other_cache, same_source
from vllm_ansible.node.nfs.probe import FROM_SERVER, from_cache

Facts = Mapping[str, Any]
Measurement = dict[str, Any]
GIB, MIB = 1 << 30, 1 << 20
OWN_PLACE = "/var/cache/fscache"


def before(look: Facts, plan: Facts, host: Facts, given: Facts) -> list[Measurement]:
    """Return what has to hold before anything is changed; given are the role's variables."""
    want = Given(**given)
    where = str(host["name"])
    found = [
        _measured(
            "NFS in the kernel",
            not (look["nfs"] or look["nfsd"]),
            "a kernel that can mount NFS, and on the server serve it",
            look["nfs"] or look["nfsd"] or "it can",
            where,
            "on Ubuntu install linux-modules-extra-$(uname -r); a container has its machine's "
            "kernel: mount it there",
        ),
        _measured(
            "where the directory comes from",
            bool(plan["source"] or plan["serves"]) and not (want.export and want.server),
            "one of nfs_cache_export, nfs_cache_server, or a mount at nfs_cache_path",
            " and ".join(filter(None, (want.export, want.server))) or plan["source"] or "none",
            where,
            "set nfs_cache_export to server:/path, or nfs_cache_server to a host of this cluster "
            "that takes part in this run",
        ),
        *([] if plan["serves"] else _mount(look, plan, where)),
        *_place(look["place"], plan, where, want),
    ]
    if not (plan["serves"] or plan["caches"]):
        found.append(
            _measured(
                "the cache",
                not want.required,
                "a cache on a disk of this host (nfs_cache_required)",
                f"no cache: {plan['why_not']}",
                where,
                "boot a kernel with CONFIG_FSCACHE, CONFIG_CACHEFILES and CONFIG_NFS_FSCACHE, or "
                "let nfs_cache_required be false",
            )
        )
    if plan["caches"] and plan["manages"]:
        found += [*_room(look, where, want), _users(look, where, want)]
    return found


def _mount(look: Facts, plan: Facts, where: str) -> list[Measurement]:
    """Return whether the path is free, or mounted from where it is to be."""
    here, managed = look["mount"], plan["manages"]
    right = here is None or same_source(here["source"], plan["source"])
    return [
        _measured(
            "what is mounted",
            right and (managed or here is not None),
            plan["source"],
            here["source"] if here else "nothing",
            where,
            f"umount {here['point']}, or let nfs_cache_export be {here['source']}"
            if here and not right
            else "as an administrator mount it, or let this run use root",
        ),
    ]


def _place(place: Facts, plan: Facts, where: str, want: Given) -> list[Measurement]:
    """Return whether the path can be mounted upon, or has a mount that answers."""
    entries, straight = place["entries"], place["real"] == want.path
    hidden = bool(entries) and straight and plan["manages"] and not plan["serves"]
    inside = f"{want.directory.rstrip('/')}/".startswith(f"{want.path}/")
    return [
        _measured(
            "the path",
            straight,
            "a path without symbolic links, because the kernel names mounts by it",
            f"{want.path} is {place['real']}",
            where,
            f"set nfs_cache_path to {place['real']}",
        ),
        _measured(
            "files that a mount would hide",
            not hidden,
            f"{want.path} is empty, or not there yet",
            ", ".join(entries[:5]) + (", ..." if len(entries) > 5 else ""),
            where,
            "move it away, or choose another nfs_cache_path",
        ),
        _measured(
            "the server",
            not place["away"],
            f"an answer from the server of {want.path}",
            place["away"],
            where,
            f"see that {plan['source']} is up and can be reached (port 2049); umount --lazy "
            f"--force {want.path} takes the mount away where it is gone for good",
        ),
        _measured(
            "where the cache is",
            not (plan["caches"] and inside),
            f"a directory outside {want.path}, which is what it caches",
            want.directory,
            where,
            "set nfs_cache_directory to one on a disk of the host",
        ),
    ]


def _room(look: Facts, where: str, want: Given) -> list[Measurement]:
    """Return whether the disk can hold the cache, with its numbers."""
    limits = all_limits(want.limits)
    room, faults = look["room"], limits_faults(limits)
    # What is below bcull is culled at once (cachefilesd.conf(5)).
    usable = room["free"] - room["size"] * limits["bcull"] / 100
    place = f"{where}:{room['directory']}"
    elsewhere = "let nfs_cache_directory be on another disk, or empty for no cache"
    labelled = not look["selinux"] or room["directory"] == OWN_PLACE
    return [
        _measured(
            "limits of the cache",
            not faults,
            "0 <= bstop < bcull < brun < 100, and the same for fstop, fcull, frun",
            "; ".join(faults) or "in order",
            where,
            "correct nfs_cache_limits",
        ),
        _measured(
            "room for the cache",
            room["used"] or usable >= want.minimum_free_gib * GIB,
            f"{want.minimum_free_gib:g} GiB above the {limits['bcull']} % that stay free (bcull)",
            f"{usable / GIB:.1f} GiB: {room['free'] / GIB:.1f} GiB free of "
            f"{room['size'] / GIB:.1f} GiB at {room['disk']}",
            place,
            f"{elsewhere}; or lower nfs_cache_minimum_free_gib",
        ),
        _measured(
            "the cache's file system",
            not room["attributes"] and not room["network"],
            "a file system of this host that keeps extended attributes of users",
            f"{room['kind']} at {room['disk']}"
            + (f": {room['attributes']}" if room["attributes"] else ""),
            place,
            f"{elsewhere}; ext4 and xfs will do",
        ),
        _measured(
            "the label that SELinux asks for",
            labelled,
            f"cachefiles_var_t, which {OWN_PLACE} has",
            f"{room['directory']}, which the policy does not know",
            place,
            f"semanage fcontext -a -e {OWN_PLACE} {room['directory']}, and let it be mounted at "
            f"{OWN_PLACE}: leave nfs_cache_directory as it is",
        ),
    ]


def _users(look: Facts, where: str, want: Given) -> Measurement:
    """Return whether the cache of what is mounted may become another."""
    tag = tag_of(cachefilesd_conf(want.directory, want.limits, look["selinux"]))
    other, users = other_cache(look["bound"], tag), look["users"]
    return _measured(
        "who uses the mount",
        not (other and users),
        f"no process, because it gets {other[0]} and must be mounted again" if other else "",
        "; ".join(users[:10]) + ("; ..." if len(users) > 10 else ""),
        where,
        "end them (engines: ansible-playbook playbooks/stop.yml) and run this again, or leave "
        "nfs_cache_limits and nfs_cache_directory as they were",
    )


def after(look: Facts, plan: Facts, proof: Facts, host: Facts) -> list[Measurement]:
    """Return what the proof shows: the column FSC, and where the second read came from."""
    where = str(host["name"])
    if not plan["caches"]:
        return []
    size, last = proof["bytes"], proof["reads"][-1]
    held = f"; AppArmor holds it by {look['apparmor']}" if look["apparmor"] else ""
    return [
        _measured(
            "the column FSC",
            proof["fsc"],
            "yes in /proc/fs/nfsfs/volumes",
            "yes" if proof["fsc"] else "no",
            where,
            f"see `journalctl -u cachefilesd` and /proc/fs/fscache/caches{held}"
            if plan["manages"]
            else "as an administrator start cachefilesd and mount it again with fsc, or let this "
            "run use root",
        ),
        _measured(
            "a second read from the cache",
            from_cache(last, size),
            f"less than {FROM_SERVER * size / MIB:.1f} of {size / MIB:.1f} MiB from the server or "
            "from memory",
            f"{_mib(last['server_bytes'])} from the server, {_mib(last['memory_bytes'])} in memory "
            f"before, after {len(proof['reads']) - 1} repetitions",
            where,
            "see whether others read the same mount meanwhile, `journalctl -u cachefilesd`, and "
            f"the free space of {look['room']['disk']}{held}",
        ),
    ]


def summary(plan: Facts, proof: Facts, host: Facts, path: str) -> str:
    """Return one line for people."""
    name = host["name"]
    if plan["serves"]:
        return f"{name} serves {path}"
    first, last = proof["reads"][0], proof["reads"][-1]
    reads = (
        f"{_mib(proof['bytes'])} read in {first['seconds']:g} s, then in {last['seconds']:g} s, "
        f"{_mib(first['server_bytes'])} and then {_mib(last['server_bytes'])} of it from the server"
    )
    state = "cached" if plan["caches"] else f"no cache: {plan['why_not']}"
    return f"{name} has {path} from {plan['source']}, {state}; {reads}"


def _mib(size: int | None) -> str:
    return "an unknown number of MiB" if size is None else f"{size / MIB:.1f} MiB"


def _measured(what: str, ok: bool, expected: str, found: str, where: str, fix: str) -> Measurement:
    return {
        "what": what,
        "ok": bool(ok),
        "expected": expected,
        "found": found,
        "where": where,
        "fix": fix,
    }
