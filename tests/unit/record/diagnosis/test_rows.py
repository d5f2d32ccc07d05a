"""Every row of a list of messages is reached by the lines that it is made for.

Of each alternative of a row's pattern a line is written, the shortest that the pattern finds. A
signature that knows that line is read before the list: the row speaks only where the signature is
generic and the list's `over` names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from vllm_ansible.record.diagnosis import raised
from vllm_ansible.record.diagnosis.match import Signature, all_matches

# Which letter stands for a class of letters, the first that is in it.
_LETTERS = "a7 /.-_:,A"
_MOST = 12
# What these say of a line is as exact as a row, or rests on facts: alternatives of rows that they
# hide are no loss, as long as the row has others.
_AS_EXACT = frozenset(
    [
        "container-cli-refused",
        "hub-gated",
        "hub-not-found",
        "hub-offline",
        "jetstream-storage",
        "munge-clocks",
        "nats-unreachable",
        "port-taken",
        "ports-all-taken",
        "python-too-old",
        "wheel-not-found",
    ]
)


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
    return next(str(letter) for letter in letters if pattern.match(letter))


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


def lines(within: re.Pattern[str], row: raised.Family) -> list[list[str]]:
    """Return lines that a list is asked for and its row finds, for each alternative of the row."""
    around = [text for text in written(_parser.parse(within.pattern)) if text.strip()]
    found = [
        [
            line
            for head in ["", *around]
            for line in (f"{head} {text}".strip(), f"{text} {head}".strip())
            if within.search(line) and row.pattern.search(line)
        ]
        for text in dict.fromkeys(written(_parser.parse(row.pattern.pattern)))
        if text.strip()
    ]
    return [one for one in found if one]


ROWS = [(within, row) for within, rows in raised.messages() for row in rows]
NAMES = [f"{row.id}: {row.pattern.pattern[-40:]}" for _, row in ROWS]


def known_by(line: str) -> Signature | None:
    known = (one for one in all_matches(line) if not (one.frames or one.beside))
    return next(known, None)


def speaks(row: raised.Family, line: str) -> bool:
    signature = known_by(line)
    if signature and not signature.generic:
        return False
    reading = raised.read(line, "", signature)
    return bool(reading and reading.family is row)


@pytest.mark.parametrize(("within", "row"), ROWS, ids=NAMES)
def test_a_row_is_not_hidden_by_a_signature_or_another_row(
    within: re.Pattern[str], row: raised.Family
) -> None:
    found = lines(within, row)
    assert found, "no line could be written for it"
    hidden = [one for one in found if not any(speaks(row, line) for line in one)]
    assert len(hidden) < len(found)
    by = {one[0]: known_by(one[0]) for one in hidden}
    assert [line for line, known in by.items() if not known or known.id not in _AS_EXACT] == []
