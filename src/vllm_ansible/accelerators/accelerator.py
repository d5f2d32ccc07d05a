"""What one accelerator holds, computes and moves, looked up by a short name or by its driver's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from vllm_ansible.accelerators.platform import USUAL, platforms
from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem, close_match

DATA = Path(__file__).with_name("accelerators.json")
FORMATS = ("bf16", "fp8", "fp4")
NUMBERS = ("memory_bytes", "bandwidth", "link", "host_link", "devices_per_node", "card")


@frozen
class Accelerator:
    """One kind of device.

    `memory_bytes` is the total that the driver reports. `bandwidth`, `link`, `host_link` and
    `card` are bytes per second: of its memory, to the other devices of the node (one direction),
    to the host, and the share of the node's network cards that usually belongs to one device.
    `flops` are dense operations per second by format; a format that is absent cannot be computed.
    `capability` is NVIDIA's compute capability. `peer_to_peer` tells whether devices of a node
    reach each other without the host.
    """

    name: str
    kind: str
    memory_bytes: int
    memory_source: str
    bandwidth: int
    flops: Mapping[str, int]
    link: int
    link_name: str
    host_link: int
    devices_per_node: int
    card: int
    capability: float | None
    peer_to_peer: bool
    aliases: tuple[str, ...]
    driver_names: tuple[str, ...]
    sources: tuple[str, ...]
    assumed: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """Return the formats in which this device multiplies."""
        return tuple(name for name in FORMATS if name in self.flops)


@lru_cache(maxsize=1)
def accelerators() -> Mapping[str, Accelerator]:
    """Return every accelerator that comes with this project, by name."""
    found = [_read(entry) for entry in json.loads(DATA.read_text(encoding="utf-8"))]
    return {one.name: one for one in found}


def accelerator(name: str, own: Mapping[str, Mapping[str, Any]] | None = None) -> Accelerator:
    """Return the accelerator of a short name, an alias or a driver's name.

    own: accelerators of an inventory by name; each gives any of the fields, and `like` names the
    one whose fields fill the rest. Raises PlanError, one sentence, for a name nobody knows.
    """
    mine = {key: _own(key, fields_) for key, fields_ in (own or {}).items()}
    index = _index(tuple(accelerators().values())) | _index(tuple(mine.values()))
    found = index.get(_plain(name))
    if found is None:
        known = [*mine, *accelerators()]
        raise PlanError(
            Problem(
                f"accelerator {name!r} is not known",
                expected=f"one of {', '.join(known)}",
                found=name,
                fix=close_match(name, known)
                or f"use one of {', '.join(known)}, or describe it in the variable accelerators",
            )
        )
    return found


def _index(known: tuple[Accelerator, ...]) -> dict[str, Accelerator]:
    """Return accelerators by everything they are called, without case and punctuation."""
    return {
        _plain(word): one for one in known for word in (*one.driver_names, *one.aliases, one.name)
    }


def _plain(name: str) -> str:
    """Return a name as people mean it: `NVIDIA H200` and h200 are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum()).removeprefix("nvidia")


def _own(name: str, given: Mapping[str, Any]) -> Accelerator:
    """Return an accelerator of the inventory, or refuse with what is wrong in one sentence."""
    known = {field.name for field in fields(Accelerator)} | {"like"}
    where = f"accelerators.{name}"
    strange = sorted(set(given) - known)
    if strange:
        raise PlanError(
            Problem(
                f"{where} has no field {strange[0]!r}",
                where=where,
                fix=close_match(strange[0], known)
                or f"known fields are {', '.join(sorted(known))}",
            )
        )
    like = accelerator(str(given.get("like", "H100-80")))
    rest = {field.name: getattr(like, field.name) for field in fields(Accelerator)}
    rest |= {"aliases": (), "driver_names": (), "sources": ("the inventory",), "assumed": ()}
    if "like" not in given and not {"memory_bytes", "bandwidth", "flops"} <= set(given):
        raise PlanError(
            Problem(
                f"{where} needs memory_bytes, bandwidth and flops, or like: a known accelerator",
                where=where,
                fix="give those three, or like: H100-80",
            )
        )
    _check(given, where)
    return _read({**rest, **{key: given[key] for key in given if key != "like"}, "name": name})


def _check(given: Mapping[str, Any], where: str) -> None:
    """Refuse a field that nothing can be computed from."""
    wrong = {name: "a number above 0" for name in NUMBERS if not _positive(given.get(name, 1))}
    flops, capability = given.get("flops", {FORMATS[0]: 1}), given.get("capability")
    if not isinstance(flops, Mapping) or not set(flops) <= set(FORMATS):
        wrong["flops"] = f"a mapping of {', '.join(FORMATS)} to operations per second"
    elif FORMATS[0] not in flops or not all(_positive(rate) for rate in flops.values()):
        wrong["flops"] = f"a number above 0 for {FORMATS[0]} and every other format"
    if capability is not None and not _positive(capability):
        wrong["capability"] = "a number such as 9.0, or null"
    if str(given.get("kind", USUAL)) not in platforms():
        wrong["kind"] = f"one of {', '.join(platforms())}"
    if not isinstance(given.get("peer_to_peer", True), bool):
        wrong["peer_to_peer"] = "true or false"
    for name, needed in wrong.items():
        found = repr(given[name])
        told = f"{where}.{name} is {found}, and {needed} is needed"
        # YAML 1.1 reads 9e14 as text.
        fix = f"correct {where}.{name}"
        if name in (*NUMBERS, "flops"):
            fix += "; an exponent needs a point and a sign, as in 9.0e+14"
        raise PlanError(Problem(told, needed, found, where, fix))


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


def _read(entry: Mapping[str, Any]) -> Accelerator:
    """Return one entry of the data with lists as tuples."""
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return Accelerator(**values)
