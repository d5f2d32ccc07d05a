"""Words of a shell script that may hold variables which only the job knows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

# Of the private use area: no text of an inventory has them.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GOES_ON = re.compile(r"[A-Za-z0-9_\[]")


def variable(expression: str) -> str:
    """Return a mark that may stand anywhere in a text and becomes `${expression}`."""
    return f"{_OPEN}{expression}{_CLOSE}"


def is_marked(text: str) -> bool:
    """Tell whether a text holds a mark, or a part of one."""
    return _OPEN in text or _CLOSE in text


def renamed(text: str, names: dict[str, str]) -> str:
    """Return a text with some of its variables under other names."""
    return _MARK.sub(lambda found: variable(names.get(found[1], found[1])), text)


def word(text: str) -> str:
    """Return a text as one word of a shell."""
    if not is_marked(text) and not re.search(r"[$`']", text):
        quoted = shlex.quote(text)
        # A comma needs no quotes, but looks like a slip in a list.
        return f"'{text}'" if quoted == text and "," in text else quoted
    return '"' + _expanded(text, r'["$`\\]') + '"'


def lines_of_words(words: Sequence[str]) -> list[str]:
    """Return words of a shell as lines for people: the program first, then option by option."""
    lines: list[list[str]] = [[]]
    for text in words:
        if text.startswith("--"):
            lines.append([])
        lines[-1].append(word(text))
    return [" ".join(line) for line in lines if line]


def lines_of_document(text: str) -> str:
    """Return a text as it stands in a here-document whose variables are expanded."""
    return _expanded(text, r"[$`\\]")


def comment(text: str) -> str:
    """Return a text as one line after a `#`."""
    return " ".join(text.split())


def _expanded(text: str, special: str) -> str:
    """Return a text with what is special to the shell escaped, and its marks as variables."""
    pieces = _MARK.split(text)
    shown = []
    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            shown.append(re.sub(special, lambda found: "\\" + found[0], piece))
            continue
        plain = _NAME.fullmatch(piece) and not _GOES_ON.match(pieces[place + 1])
        shown.append(f"${piece}" if plain else f"${{{piece}}}")
    return "".join(shown)
