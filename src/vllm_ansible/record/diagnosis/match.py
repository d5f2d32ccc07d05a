"""Find a known failure in what programs wrote."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from . import cuda_errors
from .known import items

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
    # A line of this kind has several causes, of which the signature can only name the usual one:
    # any other known line near it says more.
    generic: bool = False
    # What its line says is not the cause, which is the usual one for it; said as not certain.
    inferred: bool = False
    # Its cause says no more than its line does, so it is certain.
    plain: bool = False
    # Its line only follows from a failure; it speaks where no other does.
    follows: bool = False
    # Its line is only a warning of its program, and yet why that fails.
    warns: bool = False
    # What other lines of the same logs must, and must not, say.
    beside: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    # What the frames of the exception's traceback must say: where it was raised.
    frames: re.Pattern[str] | None = None

    @property
    def hands_on(self) -> bool:
        """Tell whether its line only reports that something failed."""
        return self.cause.startswith("Not known from this line")

    def holds_beside(self, text: str) -> bool:
        """Tell whether the rest of the logs bears it out."""
        if self.beside and not self.beside.search(text):
            return False
        return not (self.unless and self.unless.search(text))

    def raised_in(self, frames: str) -> bool:
        """Tell whether the frames of a traceback are those that it asks for."""
        return not self.frames or bool(self.frames.search(frames))


@cache
def signatures() -> tuple[Signature, ...]:
    """Return all known failures; of two that one line shows, the first counts."""
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
            generic=item.get("generic", False),
            inferred=item.get("inferred", False),
            plain=item.get("plain", False),
            follows=item.get("follows", False),
            warns=item.get("warns", False),
            beside=_pattern(item.get("beside")),
            unless=_pattern(item.get("unless")),
            frames=_pattern(item.get("frames")),
        )
        for item in items("signatures/*.yml")
    )


def _pattern(regex: str | list[str] | None) -> re.Pattern[str] | None:
    """Return one pattern of a regex or of a list of alternatives."""
    if not regex:
        return None
    return re.compile(regex if isinstance(regex, str) else "|".join(regex))


def match(text: str, kinds: Collection[str] = FAILURES) -> Signature | None:
    """Return the known failure that the text shows first, or None."""
    found = all_matches(text, kinds)
    # A text that is no log brings its frames with it, or has none.
    return next((one for one in found if one.raised_in(text)), None)


def all_matches(text: str, kinds: Collection[str] = FAILURES) -> Sequence[Signature]:
    """Return the known failures that the text shows: specific ones, the innermost, the first."""
    return _matches(text, tuple(kinds))


# What a line wraps is the reason of what stands before it.
_WRAPS = re.compile(r"[.:] Error: |[Cc]aused by[: ]|\bdesc = |\bstderr: |<\w+ error ")


_RAISED = {"Value error, ": "ValueError: ", "Assertion failed, ": "AssertionError: "}
_CHECKED = re.compile("|".join(_RAISED))


# Logs repeat themselves.
@lru_cache(maxsize=8192)
def _matches(text: str, kinds: tuple[str, ...]) -> tuple[Signature, ...]:
    # As pydantic words the exceptions of a configuration's own checks.
    text = _CHECKED.sub(lambda found: _RAISED[found[0]], text)
    if plain := cuda_errors.in_plain_words(text):
        text = f"{text} {plain}"
    wraps = [one.end() for one in _WRAPS.finditer(text)]
    found = [
        (
            (signature.generic, signature.follows),
            -sum(end <= position.start() for end in wraps),
            (position.start(), rank),
            signature,
        )
        for rank, signature in enumerate(signatures())
        if signature.kind in kinds
        and signature.pattern
        and (position := signature.pattern.search(text))
    ]
    return tuple(one[3] for one in sorted(found, key=lambda one: one[:3]))
