"""Judge all concerns of one host from one look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vllm_ansible.system import (
    clock,
    container_runtime,
    efa,
    firewall,
    hosts_file,
    hugepages,
    limits,
    network,
)
from vllm_ansible.system.judged import Judged
from vllm_ansible.system.wants import CONCERNS, Wants, irrelevant, mode_of

# By concern: mode; why it is not judged, if so; and the parts of its judgement.
Judgement = dict[str, Any]


def modes(asked: Mapping[str, str], want: Wants) -> dict[str, Judgement]:
    """Return mode and, where a concern is not judged, why: as far as it is known before a look."""
    found = {}
    for concern in CONCERNS:
        mode = mode_of(concern, asked[concern], want.root)
        why = "skipped by its mode" if mode == "skip" else irrelevant(concern, want)
        found[concern] = {"mode": mode, "why": why}
    return found


def to_look_at(asked: Mapping[str, str], want: Wants) -> list[str]:
    """Return the concerns that a look has to cover."""
    return [concern for concern, one in modes(asked, want).items() if not one["why"]]


def judge(asked: Mapping[str, str], look: Mapping[str, Any], want: Wants) -> dict[str, Judgement]:
    """Return the judgement of every concern by name, as plain values."""
    found = modes(asked, want)
    devices: Sequence[Mapping[str, Any]] = look.get("devices", [])
    for concern, one in found.items():
        judged = Judged()
        if not one["why"]:
            one["why"] = not_here(concern, look, devices)
        if not one["why"]:
            judged = _judged(concern, look, want, devices)
        found[concern] = {**one, **asdict(judged)}
    return found


def not_here(concern: str, look: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> str:
    """Return why a concern does not apply, as a look tells."""
    if concern == "hugepages":
        return hugepages.irrelevant(devices, look)
    if concern == "efa":
        return efa.irrelevant(look)
    return clock.irrelevant(look) if concern == "time" else ""


def _judged(
    concern: str, look: Mapping[str, Any], want: Wants, devices: Sequence[Mapping[str, Any]]
) -> Judged:
    judges = {
        "limits": lambda: limits.judge(look, want, devices),
        "hugepages": lambda: hugepages.judge(look),
        "efa": lambda: efa.judge(look, want.efa_installer),
        "hosts_file": lambda: hosts_file.judge(look, want),
        "time": lambda: clock.judge(look, want),
        "network": lambda: network.judge(look, want, devices),
        "firewall": lambda: firewall.judge(look, want),
        "container_runtime": lambda: container_runtime.judge(look, want),
    }
    return judges[concern]()


def to_manage(judged: Mapping[str, Judgement], root: bool) -> list[str]:
    """Return the concerns that are to be mended now: managed, different, and root is at hand."""
    if not root:
        return []
    return [
        concern
        for concern, one in judged.items()
        if one["mode"] == "manage" and one["differences"] and any(one["repair"].values())
    ]
