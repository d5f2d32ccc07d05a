"""Every row of a list of messages is reached by the lines that it is made for.

Of each alternative of a row's pattern a line is written, the shortest that the pattern finds. A
signature that knows that line is read before the list: the row speaks only where the signature is
generic and the list is over it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from vllm_ansible.record.diagnosis import raised
from vllm_ansible.record.diagnosis.match import all_matches

# Which letter stands for a class of letters, the first that is in it.
_LETTERS = "a7 /.-_:,A"
_MOST = 12


def written(parsed: Any) -> Iterator[str]:
    """Yield the shortest texts of a parsed pattern, one for each of its alternatives."""
    parts = [list(_of(what, value))[:_MOST] for what, value in parsed]
    for number in range(max((len(one) for one in parts), default=1)):
        yield "".join(one[min(number, len(one) - 1)] if one else "" for one in parts)


def _of(what: Any, value: Any) -> Iterator[str]:
    name = str(what)
    if name == "LITERAL":
        yield chr(value)
    elif name == "NOT_LITERAL":
        yield next(letter for letter in _LETTERS if letter != chr(value))
    elif name == "ANY":
        yield "a"
    elif value is _constants.AT_BOUNDARY:
        yield from ("", " ")
    elif name == "IN":
        yield _letter(value)
    elif name == "BRANCH":
        for one in value[1]:
            yield from written(one)
    elif name == "SUBPATTERN":
        yield from written(value[3])
    elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, _, inner = value
        for text in written(inner):
            yield text * least
    elif name == "ASSERT" and value[0] > 0:
        yield from written(value[1])


def _letter(members: Any) -> str:
    pattern = re.compile(_class(members))
    letters = [*_LETTERS, *map(chr, range(33, 127))]
    return next(letter for letter in letters if pattern.match(letter))


def _class(members: Any) -> str:
    said = ""
    for what, value in members:
        name = str(what)
        if name == "NEGATE":
            said += "^"
        elif name == "LITERAL":
            said += re.escape(chr(value))
        elif name == "RANGE":
            said += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        else:
            said += {
                _constants.CATEGORY_DIGIT: r"\d",
                _constants.CATEGORY_SPACE: r"\s",
                _constants.CATEGORY_WORD: r"\w",
                _constants.CATEGORY_NOT_DIGIT: r"\D",
                _constants.CATEGORY_NOT_SPACE: r"\S",
                _constants.CATEGORY_NOT_WORD: r"\W",
            }[value]
    return f"[{said}]"


def lines(within: re.Pattern[str], row: raised.Family) -> list[str]:
    """Return lines that a list is asked for and its row finds."""
    texts = [text for text in written(_parser.parse(row.pattern.pattern)) if text.strip()]
    around = [text for text in written(_parser.parse(within.pattern)) if text.strip()]
    found = [
        line
        for text, head in product(texts, ["", *around])
        for line in (f"{head} {text}".strip(), f"{text} {head}".strip())
        if within.search(line) and row.pattern.search(line)
    ]
    return list(dict.fromkeys(found))


ROWS = [(within, row) for within, rows in raised.messages() for row in rows]


def speaks(row: raised.Family, line: str) -> bool:
    known = [one for one in all_matches(line) if not (one.frames or one.beside)]
    signature = known[0] if known else None
    if signature and not signature.generic:
        return False
    reading = raised.read(line, "", signature)
    return bool(reading and reading.family is row)


@pytest.mark.parametrize(
    ("within", "row"), ROWS, ids=[f"{row.id}: {row.pattern.pattern[-40:]}" for _, row in ROWS]
)
def test_a_row_is_not_hidden_by_a_signature_or_another_row(
    within: re.Pattern[str], row: raised.Family
) -> None:
    found = lines(within, row)
    assert found, "no line could be written for it"
    hidden = {
        line: [one.id for one in all_matches(line)][:2]
        or getattr(getattr(raised.read(line), "family", None), "id", None)
        for line in found
    }
    assert any(speaks(row, line) for line in found), hidden
