"""What a restart changes of an engine, one rung after the other, and what of it has helped.

Pure but for the file in which the rung of each engine is kept. Standard library only, Python 3.9;
the controller decides by the same functions how an engine starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Optional

from .. import launcher
from ..process import process
from ..process.process import Files, Spec

FILE = "ladder.json"
# A new key is no other engine.
SECRET = "api_key"  # noqa: S105 the name of what a process depends on

Kept = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """A line that points to a rung. `beside` must, `unless` must not, stand in the same log."""

    id: str
    regex: str
    beside: str = ""
    unless: str = ""

    def found(self, text: str) -> bool:
        """Tell whether a log has it."""
        if not re.search(self.regex, text, re.MULTILINE):
            return False
        beside = not self.beside or re.search(self.beside, text, re.MULTILINE)
        return bool(beside) and not (self.unless and re.search(self.unless, text, re.MULTILINE))


@dataclass(frozen=True)
class Rung:
    """One way to start an engine: words at the end of its command, variables besides its own.

    It is tried for findings of `kinds`, and where one of `points` stands in the engine's logs.
    """

    name: str
    says: str
    cost: str
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()

    def applies(self, kind: str, text: str) -> str:
        """Return why it is tried, empty where nothing points to it."""
        if kind in self.kinds:
            return kind
        return next((point.id for point in self.points if point.found(text)), "")


# The first rung of each ladder.
AGAIN = Rung("again", "nothing", "no cost")


def rung(value: Mapping[str, Any]) -> Rung:
    """Return a rung that the role has written."""
    points = tuple(Point(**point) for point in value["points"])
    lists = {"words": tuple(value["words"]), "kinds": tuple(value["kinds"])}
    return Rung(**{**value, **lists, "points": points})


def choose(
    rungs: Iterable[Rung], kept: Kept, kind: str, text: str, contained: bool
) -> tuple[Rung, str]:
    """Return the rung of the next restart, and what points to it; empty where that is nothing.

    kept: what is kept of the engine as it now starts, empty for one that starts as planned.
    kind: of what was found. text: its logs. contained: variables would not reach its processes.

    The rung in use is tried again first, once. Then comes the first that something points to and
    that was not tried; if there is none, the rung in use.
    """
    every = [AGAIN, *(one for one in rungs if not (contained and one.environment))]
    tried = list(kept.get("tried", ()))
    now = next((one for one in every if one.name == kept.get("rung")), None)
    if now is None:
        # Also one of an earlier release, or from before the ladder was switched off.
        now = of_kept(kept) if kept.get("rung") else AGAIN
    if now.name not in tried:
        return now, ""
    for one in every[1:]:
        if one.name not in tried and (why := one.applies(kind, text)):
            return one, why
    return now, ""


def goes_on(last: Mapping[str, Any], kind: str, seconds: float, at: float) -> bool:
    """Tell whether a failure goes on from the restart before: it has not helped, or not for long.

    An engine that hangs and is then killed has two failures.
    """
    if not last or not 0 <= at - float(last.get("ended_at", at)) < seconds:
        return False
    return not last.get("helped") or last.get("kind") == kind


def climbed(rung: Rung, spec: Spec) -> Spec:
    """Return a process as it starts on a rung."""
    environment = {**spec.environment, **dict(rung.environment)}
    return replace(spec, argv=(*spec.argv, *rung.words), environment=environment)


def descended(spec: Spec, kept: Kept) -> Spec:
    """Return a process as it is planned, of one that may start on the rung that is kept."""
    words = tuple(kept.get("words", ()))
    before = kept.get("before") or {}
    added = dict(kept.get("environment") or {})
    plain = spec.argv[: len(spec.argv) - len(words)]
    if not (words or added) or (*plain, *words) != tuple(spec.argv):
        return spec
    if any(spec.environment.get(name) != value for name, value in added.items()):
        return spec
    rest = {name: value for name, value in spec.environment.items() if name not in added}
    return replace(spec, argv=plain, environment={**rest, **before})


def planned(spec: Spec) -> str:
    """Return the digest of what an engine's rung is kept for: command, variables, packages."""
    depends = {name: value for name, value in spec.depends.items() if name != SECRET}
    return process.digest(replace(spec, depends=depends))


def entry(
    rung: Rung, why: str, specs: Mapping[str, Spec], hardware: str, tried: Sequence[str], now: float
) -> dict[str, Any]:
    """Return what is kept of an engine whose planned processes are about to start on a rung."""
    added = dict(rung.environment)
    before = {
        name: value
        for spec in specs.values()
        for name, value in spec.environment.items()
        if name in added
    }
    shown = {key: asdict(rung)[key] for key in ("says", "cost")}
    return {
        **{"rung": rung.name, "why": why, "at": now, "helped": False, **shown},
        **{"words": list(rung.words), "environment": added, "before": before},
        **{"hardware": hardware, "tried": list(tried)},
        "planned": {name: planned(spec) for name, spec in specs.items()},
    }


def holds(kept: Kept, specs: Mapping[str, Spec], hardware: str) -> bool:
    """Tell whether what is kept is of these planned processes on this hardware."""
    if not kept or kept.get("hardware") != hardware:
        return False
    return bool(kept["planned"] == {name: planned(spec) for name, spec in specs.items()})


def of_kept(kept: Kept) -> Rung:
    """Return the rung that is kept."""
    return Rung(
        kept["rung"], kept["says"], kept["cost"], tuple(kept["words"]), dict(kept["environment"])
    )


# The file.


def read(cluster_dir: str) -> dict[str, Any]:
    """Return what is kept, by engine."""
    found = process.read_json(os.path.join(cluster_dir, FILE)) or {}
    return dict(found.get("engines") or {})


def write(cluster_dir: str, engine: str, kept: Optional[Kept]) -> None:
    """Keep the rung of an engine, or forget it."""
    engines = {name: one for name, one in read(cluster_dir).items() if name != engine}
    if kept is not None:
        engines[engine] = dict(kept)
    path = os.path.join(cluster_dir, FILE)
    launcher.write_json(path, {"version": 1, "engines": engines}, mode=0o644, lasting=True)


def shown(cluster_dir: str) -> dict[str, Any]:
    """Return what is kept, and of each whether its processes start so now (`current`)."""
    return {
        name: {**kept, "current": _current(cluster_dir, kept)}
        for name, kept in read(cluster_dir).items()
    }


def _current(cluster_dir: str, kept: Kept) -> bool:
    for name, digest in kept["planned"].items():
        record = process.read_json(Files(cluster_dir, name).record)
        if record is None:
            return False
        spec = process.spec(record)
        plain = descended(spec, kept)
        if planned(plain) != digest or climbed(of_kept(kept), plain) != spec:
            return False
    return True
