"""The way of an image's tar through a cluster: in once, then from host to host like weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.planner.problem import PlanError, Problem
from vllm_ansible.weights.spread import upstream

TAR = "image.tar"


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


def manifest(slug: str, size: int, sha256: str) -> dict[str, Any]:
    """Return the tar as what the weight store passes on: one file."""
    files = [{"name": TAR, "bytes": size, "sha256": sha256}]
    return {slug: {"model": "the engine's image", "revision": sha256, "files": files}}


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
