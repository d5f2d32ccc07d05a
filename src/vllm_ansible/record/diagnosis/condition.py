"""Hold a cause against facts: what a condition asks, and sentences with values in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from .facts import Fact, Value

_TEST = re.compile(r"(?P<sign><=|>=|==|!=|<|>|~|has|lacks) (?P<wanted>.+)", re.DOTALL)


class UnknownFact(KeyError):
    """A sentence names a fact that nobody knows."""


def holds(when: Mapping[str, Any], facts: Mapping[str, Fact]) -> bool:
    """Tell whether every fact that a condition names is known and as it says.

    when: by name of a fact, a value that it equals, or a sign and a value, which may be another
    fact in braces: `>= {torch_cuda}`. Versions and numbers are compared by their numbers; `~` is a
    regular expression, `has` and `lacks` are for lists, and `known` asks for any value.
    """
    return all(_one(name, test, facts) for name, test in when.items())


def filled(texts: str | Sequence[str], facts: Mapping[str, Fact]) -> str:
    """Return the first of some sentences all of whose facts are known, with their values."""
    for text in [texts] if isinstance(texts, str) else texts:
        try:
            return _fill(text, facts)
        except UnknownFact:
            continue
    raise UnknownFact(str(texts))


def names_in(text: str) -> set[str]:
    """Return the names of the facts that a sentence needs."""
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def used(text: str | Sequence[str], facts: Mapping[str, Fact]) -> set[str]:
    """Return the names of the facts in the sentence that `filled` chooses."""
    for one in [text] if isinstance(text, str) else text:
        if names_in(one) <= set(facts):
            return names_in(one)
    return set()


def _fill(text: str, facts: Mapping[str, Fact]) -> str:
    if missing := names_in(text) - set(facts):
        raise UnknownFact(", ".join(sorted(missing)))
    return text.format_map({name: facts[name].shown for name in names_in(text)})


def _one(name: str, test: Any, facts: Mapping[str, Fact]) -> bool:
    fact = facts.get(name)
    if fact is None:
        return False
    if test == "known":
        return True
    if not isinstance(test, str):
        return bool(fact.value == test)
    found = _TEST.fullmatch(test)
    if not found:
        return fact.shown == test
    try:
        wanted = _fill(found["wanted"], facts) if found["sign"] != "~" else found["wanted"]
    except UnknownFact:
        return False
    return _compare(fact.value, found["sign"], wanted)


def _compare(value: Value, sign: str, wanted: str) -> bool:
    if sign == "~":
        return re.search(wanted, _text(value)) is not None
    if sign in ("has", "lacks"):
        inside = wanted in (value if isinstance(value, tuple) else _text(value).split())
        return inside if sign == "has" else not inside
    if sign in ("==", "!="):
        return (_text(value) == wanted) is (sign == "==")
    one, other = _numbers(_text(value)), _numbers(wanted)
    if not one or not other:
        return False
    # 12.8 is not below 12.8.1 by more than what nobody said.
    length = min(len(one), len(other))
    one, other = one[:length], other[:length]
    return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[sign]


def _text(value: Value) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found[1].split(".")) if found else ()
