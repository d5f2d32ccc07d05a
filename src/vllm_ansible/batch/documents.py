"""JSON documents read one element at a time, each with the line it begins on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")


class Malformed(ValueError):
    """A text is not the JSON that was expected; `line` says where, from 1."""

    def __init__(self, words: str, line: int) -> None:
        super().__init__(words)
        self.line = line


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, unless it says one name twice: Python would take the last in silence."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice in one object")
    return made


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)


def lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield line number and value of each line of JSON that is not blank.

    Raises Malformed, also where a line is not UTF-8.
    """
    with path.open("rb") as file:
        for number, content in enumerate(file, 1):
            try:
                # Without its end: what is missing there is not missing on the line below.
                line = content.decode("utf-8-sig" if number == 1 else "utf-8").rstrip()
            except UnicodeDecodeError as error:
                raise Malformed(f"byte {error.start + 1} is not UTF-8", number) from error
            if line:
                walk = Walk(line, number)
                yield walk.value()
                walk.end()


class Walk:
    """A place in a JSON text that moves forward, value by value, and knows its line."""

    def __init__(self, text: str, line: int = 1) -> None:
        self._text = text
        self._at = 0
        self.line = line

    def peek(self) -> str:
        """Return the next character that is not blank, empty at the end."""
        found = _SPACE.match(self._text, self._at)
        self._move(found.end() if found else self._at)
        return self._text[self._at : self._at + 1]

    def take(self, wanted: str) -> str:
        """Step over one of these characters and return it."""
        found = self.peek()
        if not found or found not in wanted:
            either = " or ".join(wanted)
            raise Malformed(f"expected {either}, found {found or 'the end of the file'}", self.line)
        self._move(self._at + 1)
        return found

    def value(self) -> tuple[int, Any]:
        """Return the line that the next value begins on, and the value."""
        self.peek()
        line = self.line
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            # Its own line counts from the beginning of this text.
            first = line - self._text.count("\n", 0, self._at)
            raise Malformed(error.msg, first + error.lineno - 1) from error
        except (ValueError, RecursionError) as error:
            raise Malformed(str(error), line) from error
        self._move(end)
        return line, value

    def elements(self) -> Iterator[tuple[int, Any]]:
        """Yield line and value of each element of the list that begins here."""
        self.take("[")
        if self.peek() == "]":
            self.take("]")
            return
        while True:
            yield self.value()
            if self.take(",]") == "]":
                return

    def names(self) -> Iterator[tuple[int, str]]:
        """Yield line and name of each member of the object here; the caller takes its value."""
        self.take("{")
        if self.peek() == "}":
            self.take("}")
            return
        seen = set()
        while True:
            line, name = self.value()
            if not isinstance(name, str) or name in seen:
                raise Malformed(f"{name!r} is not a name, or given twice", line)
            seen.add(name)
            self.take(":")
            yield line, name
            if self.take(",}") == "}":
                return

    def end(self) -> None:
        """Refuse whatever follows."""
        if found := self.peek():
            raise Malformed(f"expected the end, found {found}", self.line)

    def _move(self, to: int) -> None:
        self.line += self._text.count("\n", self._at, to)
        self._at = to
