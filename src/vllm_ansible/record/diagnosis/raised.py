"""Read a failing line by its structure: what kind of error it is, of which package, about what.

This says what no signature knows, and names what a signature for many lines leaves open: the
packages between which an exception was raised, the module, argument, file, address or key in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from ...node.accelerators import xid
from . import condition, cuda_errors, named, own_words
from .facts import Fact
from .known import items
from .match import Signature

_FRAME = re.compile(r'File "(?P<path>[^"]+)", line \d+')
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(?P<name>\w+)")
# Where transformers keeps the code that comes with a model, and how it names the parts of it.
_OWN_CODE = re.compile(r"/transformers_modules/\S*?(?P<name>\w+\.py)\b")
# An address with its port, and not a file with the number of a line; a word before ", 600" is none.
_ADDRESS = re.compile(
    r"(?<![\w.-])(?:\w+://)?\[?(?:"
    r"(?:(?:\d+\.){3}\d+|[A-Za-z][\w-]*(?:\.[\w-]+)+)\]?(?::|, |<)|[A-Za-z][\w-]*\]?(?::|<)"
    r")\d{2,5}\b(?![.\]]?\d)"
)
_SOURCE = re.compile(r"\.(?:cc|cpp|cuh?|py|go|rs|hh?|cfg)(?:$|:)")
# Of a longer line only the ends are read: patterns take more than linear time on a long word.
_LONGEST = 4000
# An assertion as a person reads it.
_LONGEST_CHECK = 160
# What runs others' code: its frames do not tell whose call failed.
_WRAPPERS = frozenset(
    [
        "asyncio",
        "cloudpickle",
        "click",
        "concurrent",
        "importlib",
        "multiprocessing",
        "pydantic",
        "pydantic_core",
        "ray",
        "starlette",
        "torch",
        "typer",
        "uvicorn",
        "uvloop",
    ]
)
# Such a line shows that something is gone, refused, used up, late or dead, and not why; what is
# said of it is certain only where facts confirm it or it says no more than the line.
_SYMPTOM = re.compile(
    "|".join(
        (
            r"tim(?:ed|e) ?-?out|deadline exceeded|refused|reset by peer|unreachable|no route",
            r"connection (?:closed|lost|error|broken)|(?:failed|unable) to connect",
            r"(?:can(?:no|')?t|could(?: not|n't)) (?:connect|reach|contact|find|open|locate|load)",
            r"no such (?:file|device)|not found|does not exist|missing|is not available",
            r"no [\w ]{1,30} (?:found|available|detected)|denied|not permitted|unauthorized",
            r"forbidden|out of memory|cannot allocate|no space left|insufficient|too many",
            r"resource|killed|signal|exit(?:ed)?\b.{0,10} (?:code|status)|core dumped|segfault",
            r"abort|died|unknown error|internal error|unhandled|illegal memory|unspecified",
            r"initialization error|invalid argument|bad address|input/output error|\bbusy\b",
            r"unexpected|transport endpoint|unable to (?:get|create|start|load|read|write)",
            r"\b40[134]\b|\b(?:key|index|attribute|type|assertion|unboundlocal|name|eof)error\b",
        )
    ),
    re.IGNORECASE,
)


# Errors that programs raise on purpose, for a reason that they give.
_REFUSES = re.compile(r"\b(?:Value|NotImplemented|Key)Error: ")

# What NVIDIA asks for at an Xid.
_ACTIONS = {
    "CHECK_MECHANICALS": "check the card's seat and power, then replace it",
    "CONTACT_SUPPORT": "have the card replaced",
    "RESTART_BM": "reboot the host, and have the card replaced when it comes again",
    "RESTART_VM": "restart the virtual machine",
    "RESTART_APP": "restart the engine; the same with other programs on this GPU means the card",
    "RESET_GPU": "reset the GPU (`nvidia-smi -r -i N`), and have it replaced when it comes again",
    "WORKFLOW_XID_48": "reset the GPU, then run `dcgmi diag -r 3`",
    "WORKFLOW_NVLINK_ERR": "reset all GPUs of the host, and look at `nvidia-smi nvlink -e`",
    "WORKFLOW_NVLINK5_ERR": "reset all GPUs of the host, and look at `nvidia-smi nvlink -e`",
}


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
    # It only repeats what the line says, where no other family knows more.
    plainest: bool = False
    # It matches the name of a tool, which lines without a level hold that report no failure.
    names: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What the structure of a line says."""

    family: Family
    cause: str
    fix: str


@cache
def messages() -> tuple[tuple[re.Pattern[str], tuple[Family, ...]], ...]:
    """Return the lists of messages of programs around an engine.

    Of each what its lines say, and its rows.
    """
    return tuple((re.compile(one["in"]), _rows(one)) for one in items("messages*.yml"))


def _rows(of: dict[str, Any]) -> tuple[Family, ...]:
    return tuple(
        Family(
            of["list"],
            re.compile(f"{of.get('before', '')}(?:{text})"),
            _texts(cause),
            _texts(fix),
            tuple(of.get("over", ())),
            of.get("states", False),
        )
        for text, cause, fix in of["rows"]
    )


@cache
def families() -> tuple[Family, ...]:
    """Return all families; of two that a line shows, the first counts."""
    return tuple(
        Family(
            one["id"],
            re.compile("|".join(_texts(one["regex"])), re.IGNORECASE),
            _texts(one["cause"]),
            _texts(one["fix"]),
            tuple(one.get("over", ())),
            one.get("states", False),
            one.get("plainest", False),
            one.get("names", False),
        )
        for one in items("families.yml")
    )


def read(line: str, frames: str = "", signature: Signature | None = None) -> Reading | None:
    """Return what a line says by its structure, or None.

    frames: those of its traceback. signature: the one that knows the line; only what is more exact
    than it is returned.
    """
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]}\n{line[-_LONGEST // 2 :]}"
    # What a line wraps says more exactly what it is.
    inner = own_words.innermost(line)
    texts = [inner, line] if inner != line.strip() else [line]
    for text in texts:
        words = (text, cuda_errors.in_plain_words(text), cuda_errors.numbers_in_words(text))
        said = " ".join(filter(None, words))
        found = _first(said, line, frames, signature, plainest=text is texts[-1])
        if found:
            return found
    return None


def _first(
    text: str,
    line: str,
    frames: str,
    signature: Signature | None,
    plainest: bool,
    least: bool = False,
) -> Reading | None:
    """Return what the first family says that a text shows; those of its own words come last."""
    listed = (rows for where, rows in messages() if where.search(line))
    for family in chain(*listed, families()):
        if signature and signature.id not in family.over:
            continue
        if (family.plainest and not plainest) or (least and not family.plainest):
            continue
        if not (found := family.pattern.search(text)):
            continue
        values = {**packages(frames), **_own_code(frames), **_address(line), **own(line)}
        values |= _values(found)
        if "top" in values and values["top"] == values.get("package"):
            values["whole"] = values["top"]
        facts = {name: Fact(value, "this line") for name, value in values.items()}
        with suppress(condition.UnknownFact):
            return Reading(
                family, condition.filled(family.cause, facts), condition.filled(family.fix, facts)
            )
    return None


def stated(line: str) -> Reading | None:
    """Return what the words of a line state, by the plainest families; the last takes any words."""
    reason = own_words.reason(line)
    found = _first(reason, line, "", None, plainest=True, least=True) if states(reason) else None
    if found or not _REFUSES.search(line):
        return found
    return _first(f"{line} error", line, "", None, plainest=True, least=True)


def states(reason: str) -> bool:
    """Tell whether words state why, by what the plainest families look for."""
    return any(one.plainest and one.pattern.search(reason) for one in families())


def own(line: str) -> dict[str, str]:
    """Return what a line says itself: why, and what to do."""
    values = {
        "own": own_words.reason(line),
        "advice": own_words.advice(line),
        "named": named.fix(line),
    }
    return {name: text for name, text in values.items() if text}


def is_symptom(line: str) -> bool:
    """Tell whether a line shows a failure without its cause."""
    return bool(_SYMPTOM.search(line))


def packages(frames: str) -> dict[str, str]:
    """Return the package in which an exception was raised, and the one that called it."""
    names: list[str] = []
    for frame in _FRAME.finditer(frames):
        package = _PACKAGE.search(frame["path"])
        if package and package["name"] not in _WRAPPERS:
            names.append(package["name"])
    last = dict.fromkeys(reversed(names))
    return dict(zip(("package", "caller"), last, strict=False))


def checked(frames: str) -> str:
    """Return the source of the assertion in which a traceback ends, or nothing."""
    source = [one.strip() for one in frames.splitlines() if one.strip(" ^~\t")]
    last = source[-1] if source else ""
    return last if last.startswith("assert ") and len(last) <= _LONGEST_CHECK else ""


def _own_code(frames: str) -> dict[str, str]:
    """Return the last file of a model's own code in a traceback."""
    found = [one["name"] for one in _OWN_CODE.finditer(frames)]
    return {"own_code": found[-1]} if found else {}


def _address(line: str) -> dict[str, str]:
    """Return the first address with a port that a line names."""
    names = (one[0] for one in _ADDRESS.finditer(line))
    return next(({"address": one} for one in names if not _SOURCE.search(one)), {})


def _values(found: re.Match[str]) -> dict[str, str]:
    """Return what the groups of a pattern name, the package of a module, the name of an Xid."""
    values = {name: text for name, text in found.groupdict().items() if text}
    if "module" in values:
        values["top"] = values["module"].split(".")[0]
    if (told := xid.CATALOG.get(int(values.get("xid", 0)))) and told[1] in _ACTIONS:
        values.update(meaning=told[0], action=_ACTIONS[told[1]])
    return values


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
