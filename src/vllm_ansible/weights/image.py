"""The way of an image's tar through a cluster: in once, then from host to host like weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.weights.spread import upstream

TAR = "image.tar"
GIB = 1 << 30


@dataclass(frozen=True)
class Way:
    """Who gets the tar of an image, and from whom.

    entry: the host where it is, or to which the controller copies it (`copied`). upstream: for each
    host that takes part, whom it asks for the file, as the weight store wants it.
    """

    size: int = 0
    entry: str = ""
    copied: bool = False
    upstream: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def way(file: str, looks: Mapping[str, Mapping[str, Any]], on_controller: int) -> Way:
    """Return how hosts that need the tar get it; nothing where each has it or its image.

    looks: by host, `loaded` and `tar_bytes`, the length of the file under its path. on_controller:
    its length there. Zero is none. Raises PlanError where nobody has it, or where two differ.
    """
    lacking = [host for host, look in looks.items() if not look["loaded"] and not look["tar_bytes"]]
    if not lacking:
        return Way()
    sizes = {host: int(look["tar_bytes"]) for host, look in looks.items() if look["tar_bytes"]}
    if not sizes and not on_controller:
        raise PlanError(_nowhere(file, lacking))
    if len(set(sizes.values())) > 1:
        raise PlanError(_different(file, sizes))
    entry = next(iter(sizes), lacking[0])
    hosts = [entry, *(host for host in lacking if host != entry)]
    has = {entry: [TAR]}
    return Way(
        size=sizes.get(entry, on_controller),
        entry=entry,
        copied=not sizes,
        upstream={host: upstream(host, [TAR], hosts, has, [entry]) for host in hosts},
    )


def expect_room(
    decided: Way,
    looks: Mapping[str, Mapping[str, Any]],
    rooms: Mapping[str, Mapping[str, Any]],
    load_bytes: int,
) -> None:
    """Raise PlanError that names every host without room for the tar or for its image.

    rooms: by host, what engine_image_room_info saw; of hosts that have the image nothing is asked.
    load_bytes: how much of the tool's storage the image takes.
    """
    lacking = {
        host: told
        for host, room in rooms.items()
        if not looks[host]["loaded"]
        for told in [_lack(_needs(host, decided, looks[host], room, load_bytes))]
        if told
    }
    if lacking:
        raise PlanError(_no_room(decided.size, lacking))


def manifest(slug: str, size: int, sha256: str) -> dict[str, Any]:
    """Return the tar as what the weight store passes on: one file."""
    files = [{"name": TAR, "bytes": size, "sha256": sha256}]
    return {slug: {"model": "the engine's image", "revision": sha256, "files": files}}


def _needs(
    host: str,
    decided: Way,
    look: Mapping[str, Any],
    room: Mapping[str, Any],
    load_bytes: int,
) -> list[tuple[Mapping[str, Any], int, str]]:
    """Return which places of a host have to take how much, and what for."""
    needs = [(room["storage"], load_bytes, "to load it")]
    if host not in decided.upstream or look["tar_bytes"]:
        return needs
    there = min(int(room["tar"]["there_bytes"]), decided.size)
    if not decided.copied or host != decided.entry:
        return [(room["tar"], decided.size - there, "for the tar"), *needs]
    if there == decided.size:
        return needs
    # A copy is whole elsewhere first, and moved: within a file system that takes no more.
    needs.insert(0, (room["tar"], decided.size, "for the tar"))
    if room["received"]["device"] != room["tar"]["device"]:
        needs.insert(0, (room["received"], decided.size, "for the tar while it is copied"))
    return needs


def _lack(needs: Sequence[tuple[Mapping[str, Any], int, str]]) -> str:
    """Return, with figures, the file systems that cannot take what they have to."""
    devices: dict[Any, list[tuple[Mapping[str, Any], int, str]]] = {}
    for need in needs:
        devices.setdefault(need[0]["device"], []).append(need)
    told = []
    for on_device in devices.values():
        free = min(int(place["free_bytes"]) for place, _, _ in on_device)
        total = sum(size for _, size, _ in on_device)
        if free < total:
            paths = " and ".join(dict.fromkeys(str(place["path"]) for place, _, _ in on_device))
            parts = ", ".join(f"{size / GIB:.1f} GiB {why}" for _, size, why in on_device if size)
            told.append(f"{free / GIB:.1f} GiB free in {paths}, and it takes about {parts}")
    return "; ".join(told)


def _no_room(size: int, lacking: Mapping[str, str]) -> Problem:
    told = "; ".join(f"{host} has {lack}" for host, lack in lacking.items())
    return Problem(
        f"no room for the engine's image, whose tar has {size / GIB:.1f} GiB: {told}",
        expected="room for the tar and for the image that it brings, on every host that lacks it",
        found=told,
        where=", ".join(lacking),
        fix="free space there (`podman image prune` or `docker image prune` removes images that "
        "nothing uses), move the tool's storage or cluster_dir to a larger disk, or put the tar "
        "on each host under engine_image_file, on another disk: nothing was copied",
    )


def _nowhere(file: str, hosts: Sequence[str]) -> Problem:
    return Problem(
        f"the tar of the engine's image is neither on a host nor on the controller: {file}",
        expected=f"the file {file}",
        found=f"none on {', '.join(hosts)}, none on the controller",
        where="engine_image_file",
        fix="put it there, or correct engine_image_file",
    )


def _different(file: str, sizes: Mapping[str, int]) -> Problem:
    told = ", ".join(f"{size} bytes on {host}" for host, size in sizes.items())
    return Problem(
        f"hosts have different tars under {file}: {told}",
        expected="the same file on every host that has it",
        found=told,
        where="engine_image_file",
        fix="remove the one that is cut off; the host then gets it from the others",
    )
