"""What gates of a run have found, as facts of its hosts and the offsets of their clocks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import events
from .facts import EVERYWHERE, Fact, Facts, Value, merged, of
from .hosts import host_of

# Of the kept evidence of the stage verify, and of the facts in a bundle.
KEPT, FACTS = "verify.json", "facts.json"
_OFFSETS, _BLOCKED = "clock_offset_seconds", "blocked"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts by host and name; seconds by which each host's clock is ahead of most others'."""

    facts: Facts = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)

    def clocks_of(self, logs: Iterable[str]) -> dict[str, float]:
        """Return by how many seconds the clock is ahead that each log was written by.

        logs: their names. An address that Ray puts before a line of another host is one as well.
        """
        hosts = tuple(self.clocks)
        found = {rank: self.clocks.get(host_of(rank, hosts), 0.0) for rank in logs}
        for host, told in self.facts.items():
            if host in self.clocks and "address" in told:
                found[str(told["address"].value)] = self.clocks[host]
        return found

    def joined(self, other: Evidence) -> Evidence:
        """Return both; what the other says counts where they differ."""
        return Evidence(merged([self.facts, other.facts]), {**self.clocks, **other.clocks})


def of_events(told: Iterable[Mapping[str, Any]]) -> Evidence:
    """Return the evidence among the events of a run."""
    found = Evidence()
    for event in told:
        values = event.get("values")
        if event.get("event") == "evidence" and isinstance(values, Mapping):
            found = found.joined(of_gate(str(event.get("gate")), values))
    return found


def of_gate(gate: str, values: Mapping[str, Any]) -> Evidence:
    """Return what the figures of one gate say."""
    if gate == "preflight":
        return Evidence(of_hosts(values.get("facts") or {}, gate))
    if gate == "reach":
        return Evidence(_of_reach(values), _clocks(values.get(_OFFSETS)))
    return Evidence()


def of_hosts(found: Mapping[str, Mapping[str, Any]], source: str) -> Facts:
    """Return facts by host as a gate or a look has them, and what follows from all of them."""
    told = merged(of(host, _values(values), source) for host, values in found.items())
    addresses = [facts["address"].value for facts in told.values() if "address" in facts]
    if addresses:
        everywhere = {"data_plane_addresses": tuple(str(one) for one in addresses)}
        told = merged([told, of(EVERYWHERE, everywhere, source)])
    return told


def of_kept(kept: Mapping[str, Any]) -> Evidence:
    """Return what the evidence says that the stage verify keeps on the head."""
    return Evidence({}, _clocks(kept.get("clocks")))


def of_directory(directory: Path) -> Evidence:
    """Return what lies beside logs: a run's record, the evidence of verify, a bundle's facts."""
    found = Evidence()
    if (directory / events.FILE).is_file():
        found = found.joined(of_events(events.read(directory)))
    if kept := _document(directory / KEPT):
        found = found.joined(of_kept(kept))
    if told := _document(directory / FACTS):
        found = found.joined(from_document(told))
    return found


def as_document(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as JSON has it; `from_document` reads it back."""
    return {
        "facts": {
            host: {name: {"value": one.value, "source": one.source} for name, one in told.items()}
            for host, told in evidence.facts.items()
        },
        "clocks": dict(evidence.clocks),
    }


def from_document(document: Mapping[str, Any]) -> Evidence:
    """Return what `as_document` has written; whatever has another form is left out."""
    facts: dict[str, dict[str, Fact]] = {}
    for host, told in _mapping(document.get("facts")).items():
        for name, one in _mapping(told).items():
            if isinstance(one, Mapping) and "value" in one:
                value = _values({name: one["value"]})
                facts.setdefault(host, {}).update(
                    {name: Fact(value[name], str(one.get("source", FACTS)))} if value else {}
                )
    return Evidence(facts, _clocks(document.get("clocks")))


def _of_reach(values: Mapping[str, Any]) -> Facts:
    if not isinstance(values.get(_BLOCKED), int):
        return {}
    return of(EVERYWHERE, {"blocked_ports": int(values[_BLOCKED])}, "reach")


def _clocks(offsets: Any) -> dict[str, float]:
    return {
        host: float(seconds)
        for host, seconds in _mapping(offsets).items()
        if isinstance(seconds, int | float)
    }


def _values(values: Mapping[str, Any]) -> dict[str, Value]:
    """Return values of the kinds that facts have; JSON has lists for tuples."""
    found: dict[str, Value] = {}
    for name, value in values.items():
        if isinstance(value, list | tuple):
            found[str(name)] = tuple(str(one) for one in value)
        elif isinstance(value, str | int | float | bool):
            found[str(name)] = value
    return found


def _mapping(value: Any) -> dict[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}


def _document(path: Path) -> dict[str, Any]:
    try:
        return _mapping(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
