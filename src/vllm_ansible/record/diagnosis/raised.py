"""Read a failing line by its structure: what kind of error it is, of which package, about what.

This says what no signature knows, and names what a signature for many lines leaves open: the
packages between which an exception was raised, the module, argument, file, address or key in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from . import condition, cuda_errors
from .facts import Fact
from .match import Signature

_FRAME = re.compile(r'File "(?P<path>[^"]+)", line \d+')
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(?P<name>\w+)")
# What runs others' code: its frames do not tell whose call failed.
_WRAPPERS = frozenset(
    ("asyncio", "cloudpickle", "click", "concurrent", "importlib", "multiprocessing", "pydantic")
    + ("pydantic_core", "ray", "starlette", "torch", "typer", "uvicorn", "uvloop")
)


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of error: how its line reads; sentences are from the most exact to the plainest."""

    id: str
    pattern: re.Pattern[str]
    cause: tuple[str, ...]
    fix: tuple[str, ...]
    # Generic signatures that it says more exactly.
    over: tuple[str, ...] = ()
    # Its line states the cause; the other lines have several.
    states: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What the structure of a line says."""

    family: Family
    cause: str
    fix: str


@cache
def families() -> tuple[Family, ...]:
    """Return all families; of two that a line shows, the first counts."""
    file = Path(__file__).parent / "families.yml"
    return tuple(
        Family(
            one["id"],
            re.compile(one["regex"] if isinstance(one["regex"], str) else "|".join(one["regex"])),
            _texts(one["cause"]),
            _texts(one["fix"]),
            tuple(one.get("over", ())),
            one.get("states", False),
        )
        for one in yaml.safe_load(file.read_text(encoding="utf-8"))
    )


def read(line: str, frames: str = "", signature: Signature | None = None) -> Reading | None:
    """Return what a line says by its structure, or None.

    frames: those of its traceback. signature: the one that knows the line; only what is more exact
    than it is returned.
    """
    text = f"{line} {cuda_errors.in_plain_words(line)}"
    for family in families():
        if signature and signature.id not in family.over:
            continue
        if found := family.pattern.search(text):
            values = {**packages(frames), **_values(found)}
            facts = {name: Fact(value, "this line") for name, value in values.items()}
            return Reading(
                family, condition.filled(family.cause, facts), condition.filled(family.fix, facts)
            )
    return None


def packages(frames: str) -> dict[str, str]:
    """Return the package in which an exception was raised, and the one that called it."""
    names: list[str] = []
    for frame in _FRAME.finditer(frames):
        package = _PACKAGE.search(frame["path"])
        if package and package["name"] not in _WRAPPERS:
            names.append(package["name"])
    last = dict.fromkeys(reversed(names))
    return dict(zip(("package", "caller"), last, strict=False))


def _values(found: re.Match[str]) -> dict[str, str]:
    """Return what the groups of a pattern name; of a module also its package."""
    values = {name: text for name, text in found.groupdict().items() if text}
    if "module" in values:
        values["top"] = values["module"].split(".")[0]
    return values


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
