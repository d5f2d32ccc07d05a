"""A set of engines as lines for a console, as a document, and as an inventory has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from vllm_ansible.plan.estimate.layouts.engine_set import (
    Built,
    EngineSet,
    Member,
    Piece,
    built,
    unbuilt,
)
from vllm_ansible.plan.estimate.layouts.table import SHOWN, document, lines, rate

LAYOUT = (
    "tensor-parallel",
    "pipeline-parallel",
    "data-parallel",
    "distributed-executor",
    "headless",
)
# A name of an engine in an inventory has at most twelve letters, a number among them.
LETTERS = 9
Entry = dict[str, Any]


def set_lines(found: EngineSet, everything: bool = False) -> list[str]:
    """Return the set as people read it; one layout on all of its machines as itself."""
    if len(found.members) == 1:
        told = lines(found.members[0].answer, everything)
        why = unbuilt(found.members[0])
        told += ["", f"  note  The stage plan builds {why}."] if why else []
        return [*told, *([""] if found.idle else []), *_idle(found.idle)]
    request, machines = found.request, found.request.machines
    listed = [f"  {line}" for entry in entries(found) for line in _written(entry)]
    told = [
        f"{request.model.name} on {machines.line()}: a set of "
        f"{sum(one.engines for one in found.members)} engines",
        "",
        f"  {found.devices} of {machines.devices} devices, "
        f"{rate(found.output_rate)} at {request.concurrency} requests",
        *_idle(found.idle),
        "",
        *(["  engines:", *listed] if listed else []),
        *(f"  note  {words}" for words in _left_out(found)),
    ]
    for one in found.members:
        load = one.answer.request.concurrency
        first, *rest = lines(one.answer, everything)
        told += ["", f"on {where(one)}, {load} of {request.concurrency} requests: {first}"]
        told += rest if everything else _without_others(rest)
    return told


def set_document(found: EngineSet) -> dict[str, Any]:
    """Return the set as JSON holds it; of one member its plan, with what stays idle beside it."""
    beside = {
        "engines": list(entries(found)),
        "idle": [
            {"node": piece.node.name, "devices": list(_numbers(piece)), "why": why}
            for piece, why in found.idle
        ],
    }
    if len(found.members) == 1:
        return {**document(found.members[0].answer), **beside}
    together = found.output_rate
    return {
        "model": found.request.model.name,
        "machines": found.request.machines.line(),
        "concurrency": found.request.concurrency,
        "devices": found.devices,
        "output_tokens_per_second": {
            "low": round(together.low, 1),
            "middle": round(together.middle, 1),
            "high": round(together.high, 1),
        },
        "members": [
            {"devices": [list(place) for place in one.devices()], **document(one.answer)}
            for one in found.members
        ],
        **beside,
    }


def entries(found: EngineSet) -> Iterator[Entry]:
    """Yield the engines as the variable `engines` of an inventory lists them.

    What the stage `plan` does not build is left out.
    """
    text = re.sub(r"[^a-z0-9]+", "-", found.request.model.name.rpartition("/")[2].lower())
    base = (text if text[:1].isalpha() else f"m{text}")[:LETTERS].strip("-")
    made = list(map(_entry, built(found)))
    for number, entry in enumerate(made, 1):
        yield {"name": f"{base}-{number}" if len(made) > 1 else base, **entry}


def _entry(one: Built) -> Entry:
    split = one.candidate
    sizes = {
        "data": split.data * split.replicas,
        "tensor": split.tensor,
        "pipeline": split.pipeline,
    }
    layout = {name: size for name, size in sizes.items() if size > 1} or {"tensor": 1}
    hosts = list(dict.fromkeys(node for node, _ in one.devices))
    entry: Entry = {"model": one.member.answer.request.model.name, "hosts": hosts, "layout": layout}
    arguments = _arguments(one)
    return {**entry, "vllm_args": arguments} if arguments else entry


def where(member: Member) -> str:
    """Return the nodes of a member, and its devices where it does not have all of a node."""
    named: dict[str, list[int]] = {}
    for node, number in member.devices():
        named.setdefault(node, []).append(number)
    whole = {piece.node.name: piece.first == 0 for piece in member.pieces}
    return ", ".join(
        node if whole[node] else f"{node} devices {min(numbers)} to {max(numbers)}"
        for node, numbers in named.items()
    )


def _left_out(found: EngineSet) -> Iterator[str]:
    for one in found.members:
        if why := unbuilt(one):
            name = one.answer.chosen.candidate.name
            yield f"{name} on {where(one)} is not in the list: the stage plan builds {why}."


def _arguments(one: Built) -> dict[str, Any]:
    """Return what vLLM is given beside the layout."""
    member = one.member
    found: dict[str, Any] = {}
    name = ""
    for word in member.answer.start.arguments:
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            found[name] = True
        else:
            found[name] = _value(word)
    if member.answer.chosen.candidate.data > 1:
        found.pop("enable_expert_parallel", None)
    if one.length:
        found["max_model_len"] = one.length
    layout = tuple(word.replace("-", "_") for word in LAYOUT)
    return {name: value for name, value in found.items() if not name.startswith(layout)}


def _value(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _written(entry: Entry) -> list[str]:
    """Return an entry as lines of YAML."""
    layout = ", ".join(f"{name}: {size}" for name, size in entry["layout"].items())
    told = [
        f"  - name: {entry['name']}",
        f"    model: {entry['model']}",
        f"    hosts: [{', '.join(entry['hosts'])}]",
        f"    layout: {{{layout}}}",
    ]
    if "vllm_args" in entry:
        given = ", ".join(
            f"{name}: {_in_yaml(value)}" for name, value in entry["vllm_args"].items()
        )
        told.append(f"    vllm_args: {{{given}}}")
    return told


def _in_yaml(value: object) -> str:
    """Return a value of an argument as YAML has it; what only looks like a mapping is quoted."""
    if value is True:
        return "true"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _idle(pieces: Sequence[tuple[Piece, str]]) -> list[str]:
    """Return what no engine uses, and the reason once for each kind of it."""
    told: dict[tuple[int, str, str], list[str]] = {}
    for piece, why in pieces:
        first, *_, last = (*_numbers(piece), _numbers(piece)[-1])
        numbers = f"device {first}" if first == last else f"devices {first} to {last}"
        kind = piece.node.devices, piece.node.accelerator.name, why
        told.setdefault(kind, []).append(f"{piece.node.name} {numbers}")
    return [
        f"  idle  {count} x {name} on {'; '.join(places[:SHOWN])}"
        f"{f' and {len(places) - SHOWN} more' if len(places) > SHOWN else ''}: {why}"
        for (count, name, why), places in told.items()
    ]


def _numbers(piece: Piece) -> range:
    return range(piece.first, piece.first + piece.node.devices)


def _without_others(told: list[str]) -> list[str]:
    """Return the lines of a plan up to the reasons against other layouts."""
    end = told.index("  why not") if "  why not" in told else len(told)
    return told[: end - 1] if end < len(told) else told
