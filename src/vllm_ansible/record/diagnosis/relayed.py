"""Take off what a program puts before each line of another that it passes on.

A launcher's prefix may be of any form, and of any level. What follows it is known: Python's
traceback, whose head and frames carry the same prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from . import lines

_HEAD = "Traceback (most recent call last):"
_LONGEST = 160
_NUMBERS = re.compile(r"\d+")
# A launcher writes what it passes on at these.
_ROUTINE = ("INFO", "DEBUG")


def all_as_written(logs: Mapping[str, str]) -> dict[str, str]:
    """Return logs by their names with what was passed on as its program wrote it."""
    return {name: as_written(text) for name, text in logs.items()}


def as_written(text: str) -> str:
    """Return a log with the lines that were passed on as their program wrote them."""
    shapes = {one for one in _shapes(text) if re.search(rf'(?m)^{one} +File "[^"]+", line ', text)}
    if not shapes:
        return text
    return re.sub(rf"(?m)^(?:{'|'.join(sorted(shapes))})", "", text)


def _shapes(text: str) -> Iterator[str]:
    """Return patterns of the prefixes of tracebacks that no form of a log explains."""
    at = text.find(_HEAD)
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        prefix = text[start:at]
        if prefix.strip() and len(prefix) <= _LONGEST:
            line = lines.read(text[start : at + len(_HEAD)])
            if line.text != _HEAD or line.level in _ROUTINE:
                yield _NUMBERS.sub(r"\\d+", re.escape(prefix))
        at = text.find(_HEAD, at + len(_HEAD))
