"""What a line may be caused by, held against the facts of the host that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import condition
from .derived import derived
from .facts import Fact, Facts, about
from .known import items
from .match import Signature

# Of more that remain, the later ones would only be a list.
_MOST_SAID = 2


@dataclass(frozen=True, slots=True)
class Condition:
    """Facts that confirm or exclude a cause, and the sentence that says so."""

    when: Mapping[str, Any]
    why: str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cause:
    """One of the causes of a line; sentences are given from the most exact to the plainest."""

    id: str
    cause: tuple[str, ...]
    fix: tuple[str, ...]
    confirmed_by: tuple[Condition, ...]
    excluded_by: tuple[Condition, ...]
    # What to run to see whether it is this one.
    check: tuple[str, ...]
    # It is said only where facts confirm it.
    needs_proof: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure: the signatures that show it, and its causes, the usual ones first."""

    id: str
    signatures: tuple[str, ...]
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """A cause as it is said, with this site's values; `because` is what confirms it, if any."""

    id: str
    cause: str
    fix: str
    because: str = ""
    check: str = ""


@dataclass(frozen=True, slots=True)
class Excluded:
    """A cause that facts exclude, and the reason."""

    cause: str
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The causes that remain of a known line, in order, and those that facts exclude."""

    causes: tuple[Told, ...]
    excluded: tuple[Excluded, ...] = ()


def explain(signature: Signature, facts: Facts, host: str, line: str = "") -> Explanation:
    """Return what a known line is caused by on a host, as far as facts can tell.

    line: what was written, for what it says itself counts as well.
    """
    kind = kinds().get(signature.id)
    if kind is None:
        return Explanation((Told(signature.id, signature.cause, signature.fix),))
    known = {**about(facts, host), **_of_line(line)}
    known.update(derived(known))
    known.setdefault("host", Fact(host or "this host", "the log's name"))
    excluded: list[Excluded] = []
    confirmed: list[Told] = []
    unconfirmed: list[Told] = []
    for cause in kind.causes:
        if why := _first_that_holds(cause.excluded_by, known):
            excluded.append(Excluded(_plainly(cause, known), why))
            continue
        because = _first_that_holds(cause.confirmed_by, known)
        if because or not cause.needs_proof:
            (confirmed if because else unconfirmed).append(_told(cause, known, because))
    # What facts confirm needs no second guess beside it.
    return Explanation(tuple((confirmed or unconfirmed)[:_MOST_SAID]), tuple(excluded))


@cache
def kinds() -> Mapping[str, Kind]:
    """Return what is known of each signature that has more than one cause, by its id."""
    found: dict[str, Kind] = {}
    for item in items("knowledge/*.yml"):
        kind = Kind(
            item["id"], tuple(item["signatures"]), tuple(_cause(one) for one in item["causes"])
        )
        found.update((name, kind) for name in kind.signatures)
    return found


def _of_line(line: str) -> dict[str, Fact]:
    # Here, not above: log_facts is needed by nobody who only reads what is known.
    from .log_facts import values

    return {name: Fact(value, "this line") for name, value in values(line).items()}


def _first_that_holds(conditions: tuple[Condition, ...], facts: Mapping[str, Fact]) -> str:
    """Return the sentence of the first condition that facts meet, and where those come from."""
    for one in conditions:
        if condition.holds(one.when, facts):
            try:
                text = condition.filled(one.why, facts)
            except condition.UnknownFact:
                continue
            names = set(one.when) & set(facts)
            return f"{text} ({', '.join(sorted({facts[name].source for name in names}))})"
    return ""


def _told(cause: Cause, facts: Mapping[str, Fact], because: str) -> Told:
    check = condition.filled(cause.check, facts) if cause.check else ""
    return Told(
        cause.id,
        condition.filled(cause.cause, facts),
        condition.filled(cause.fix, facts),
        because,
        check,
    )


def _plainly(cause: Cause, facts: Mapping[str, Fact]) -> str:
    """Return an excluded cause in its plainest words: its exact ones would state what is not so."""
    return condition.filled(cause.cause[-1], facts)


def _cause(item: Mapping[str, Any]) -> Cause:
    return Cause(
        id=item["id"],
        cause=_texts(item["cause"]),
        fix=_texts(item["fix"]),
        confirmed_by=_conditions(item.get("confirmed_by")),
        excluded_by=_conditions(item.get("excluded_by")),
        check=_texts(item.get("check")),
        needs_proof=item.get("needs_proof", False),
    )


def _conditions(items: list[dict[str, Any]] | None) -> tuple[Condition, ...]:
    return tuple(Condition(one["when"], _texts(one["why"])) for one in items or ())


def _texts(value: str | list[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
