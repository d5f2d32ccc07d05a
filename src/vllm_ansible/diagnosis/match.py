"""Find a known failure in what programs wrote."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

# What a line must be to explain a failure. The other kinds are silent (`stall`), need an active
# check (`probe`), or stand in healthy logs as well (`info`).
FAILURES = ("error",)
KINDS = ("error", "stall", "probe", "info")


@dataclass(frozen=True, slots=True)
class Signature:
    """A failure that others have met, and what ended it."""

    id: str
    stage: str
    kind: str
    pattern: re.Pattern[str] | None
    cause: str
    fix: str
    refs: tuple[str, ...]
    sample: str


@cache
def signatures() -> tuple[Signature, ...]:
    """Return all known failures, the most frequent first."""
    data = yaml.safe_load((Path(__file__).parent / "signatures.yml").read_text(encoding="utf-8"))
    return tuple(
        Signature(
            id=item["id"],
            stage=item["stage"],
            kind=item["kind"],
            pattern=_pattern(item.get("regex")),
            cause=item["cause"],
            fix=item["fix"],
            refs=tuple(item["refs"]),
            sample=item["sample"],
        )
        for item in data
    )


def _pattern(regex: str | list[str] | None) -> re.Pattern[str] | None:
    """Return one pattern of a regex or of a list of alternatives."""
    if not regex:
        return None
    return re.compile(regex if isinstance(regex, str) else "|".join(regex))


def match(text: str, kinds: Collection[str] = FAILURES) -> Signature | None:
    """Return the known failure that the text shows first, or None."""
    found = [
        (position.start(), rank, signature)
        for rank, signature in enumerate(signatures())
        if signature.kind in kinds
        and signature.pattern
        and (position := signature.pattern.search(text))
    ]
    return min(found)[2] if found else None
