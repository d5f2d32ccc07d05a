"""Types of machines that clouds rent, by the name that their API uses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem, close_match

DATA = Path(__file__).with_name("instance_types.json")
EFA = "efa"
# EC2's grammar: a family, a generation, options, and after the dot a size.
NAME = re.compile(r"[a-z]+[0-9][a-z0-9-]*\.[a-z0-9-]+")
FAMILY = re.compile(r"[a-z]+")


@frozen
class InstanceType:
    """One type of machine.

    `fabric` is what joins machines of it beside sockets, empty where nothing has to. `cards` and
    `card_gbit` are the cards of that network, and Gb/s of one of them in one direction.
    """

    name: str
    accelerator: str
    devices: int
    fabric: str
    cards: int
    card_gbit: float

    @property
    def node_rate(self) -> float:
        """Return bytes per second of all cards of a machine, in one direction."""
        return self.cards * self.card_gbit * 1e9 / 8


@lru_cache(maxsize=1)
def instance_types() -> Mapping[str, InstanceType]:
    """Return every known type by its name."""
    return {
        name: InstanceType(name, **{**entry, "fabric": entry["fabric"] or ""})
        for name, entry in _data()["types"].items()
    }


def efa_cards() -> dict[str, int]:
    """Return how many EFA cards a machine must have, of the types that are sold for them."""
    return {name: one.cards for name, one in instance_types().items() if one.fabric == EFA}


def is_instance_type(words: str) -> bool:
    """Tell whether some words can only be meant as a type of machine, known or not."""
    return NAME.fullmatch(words.lower()) is not None


def instance_type(name: str) -> InstanceType:
    """Return a type by its name; raise PlanError, one sentence, for one that cannot be planned."""
    found = instance_types().get(name.lower())
    if found:
        return found
    known = list(instance_types())
    family = FAMILY.match(name.lower())
    other = _data()["refused"].get(family[0]) if family else None
    if other:
        raise PlanError(
            Problem(
                f"machines of type {name} have {other}, for which there is no engine here",
                expected="NVIDIA GPUs",
                found=other,
                fix=f"use a type with GPUs: {', '.join(known)}",
            )
        )
    raise PlanError(
        Problem(
            f"type of machine {name!r} is not known",
            expected=f"one of {', '.join(known)}",
            found=name,
            fix=close_match(name.lower(), known)
            or "write nodes x devices and the accelerator, such as 2x8 H100-80 @ 32x100Gb",
        )
    )


@lru_cache(maxsize=1)
def _data() -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found
