"""Find the line where a failure over many logs began."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import takewhile

from . import lines, raised
from .interleaved import log_of
from .long_log import numbered
from .match import FAILURES, Signature, all_matches

# Within this time of the first failure, a line that is known says more than one that is not:
# libraries print the reason before, or just after, the exception that it ends in.
_SAME_FAILURE_SECONDS = 5.0
_NO_TIME = float("inf")
# What a program only reported, and wrote so long after it until it ended, did not end it.
_GOES_ON_SECONDS = 60.0
_WAITED = re.compile(r"time(?:d )?-?out|deadline|did not respond|no response", re.IGNORECASE)
# A backend of HAProxy that answers again: whatever was said of it before is over.
_IS_UP = re.compile(r"\bServer (?P<server>(?P<backend>[^\s/]+)/\S+) is UP\b")
# Within so many lines after the head of an exception its reason is looked for.
_REASON_LINES = 20
# Of a traceback, the frames that are nearest to its exception.
_MOST_FRAMES = 120
# What a daemon writes last, after errors with which it would have gone on.
_FATAL = re.compile(r"^(?:\S+: )?fatal: ")
# As in what Ansible says of each host at its end: "unreachable=0 failed=0".
_NONE_OF = re.compile(r"\b\w+=0(?![\w.])")
# The rank of what a library warns of: it never is a failure by itself.
_ASIDE = 2
# An engine that only went silent shows its last phase in its last lines.
_LAST_LINES = 20
# A rank of NCCL that has joined; ranks that wait for one that has not say nothing of their host.
_JOINED = re.compile(r"\brank (?P<rank>\d+) nranks (?P<ranks>\d+)\b.*\bInit COMPLETE")
# Whatever a log said before this did not keep its program from working.
_SERVES = re.compile(
    r"Application startup complete|Uvicorn running on |init engine \(profile, create kv cache"
    r"|^\[  PASSED  \]|^# Size +(?:Avg )?(?:Latency|Bandwidth)\(|\bready to serve client requests"
    r"|^Server is ready$|^# Out of bounds values *: 0 OK|^# Avg bus bandwidth"
)

# The same without its anchors: whole logs are searched for it before their lines are taken apart.
_MAY_SERVE = re.compile(re.sub(r"[\^$]", "", _SERVES.pattern))

# Where an engine ends in such words, the libraries wrote why at their level WARN before it.
_OF_LIBRARY = re.compile(r"NCCL|nccl|NIXL|nixl|UCX|nvshmem|Gloo|DistBackendError")
# Lines without a level that tell of a failure, and what a program writes that goes on.
_TELLS = re.compile(
    r"fail|\berror|cannot|can't|could(?: not|n't)|unable|denied|refused|not found|no such|mismatch"
    r"|kill|\blost\b|fatal|reject|timed out|unhealthy|evict|unreachable|invalid|incompatible"
    r"|\bXid\b|not supported|out of memory|\boom|expired|unresponsive|busy|exceeded"
    r"|don't match|abort",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\binstead\b|skipping|without it|won't|will not|ignor|corrected|at some point|metrics|retry"
    r"|fall\w* back|optional|\bdefault\b|health check for peer"
    # The kernel's audit says what was denied to any program of the host.
    r"|^audit: |apparmor=|\bavc: ",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"complete|success|\bstarted\b|listening|\bready\b|connected|finished|\bdone\b|\brunning\b"
    r"|\bloss\b|\bOK\b|\bpassed\b|\bserving\b|100%|joined|\bUP\b|registered|selected|using"
    # What a benchmark measured.
    r"|\d (?:[KMG]i?B|tokens?|it|req\w*)/s(?:ec)?\b",
    re.IGNORECASE,
)


# A word that tells of a failure says nothing of what another clause names.
_CLAUSES = re.compile(r"[,;] | - |\. ")


@dataclass(frozen=True, slots=True)
class Finding:
    """The line that explains a failure, where it was written, and what is known about it."""

    rank: str
    line: str
    number: int
    signature: Signature | None
    writer: str | None = None
    address: str | None = None
    # When it was written, by the clocks of most hosts; seconds of no particular year.
    seconds: float = _NO_TIME
    # The frames of its traceback; whether another failing line, which nobody knows, is before it.
    frames: str = ""
    later: bool = False

    @property
    def where(self) -> str:
        """Who wrote the line, as a person would say it."""
        process = f" ({self.writer})" if self.writer else ""
        # The head's log also carries what other hosts wrote; only their address is known there.
        host = f" from {self.address}" if self.address else ""
        return f"{self.rank}{host}{process}, line {self.number} of its log"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that says that something failed; tier 1 where it only follows from another."""

    tier: int
    seconds: float
    order: int
    finding: Finding
    # Its program does not go on after it.
    ends: bool = False


def first_failure(
    logs: Mapping[str, str], clocks: Mapping[str, float] | None = None
) -> Finding | None:
    """Return the first line over all logs that says what failed, or None where none does.

    Root causes go before what merely follows from one. Logs of different hosts are compared by
    the time their lines carry; a line without a time has that of the line before it. Lines of
    logs without any time come last, for nobody can tell when they were written.

    clocks: by how many seconds the clock is ahead that a log, or an address in it, was written by.
    """
    return first_of(candidates_of(logs, clocks))


def first_of(candidates: Sequence[Candidate]) -> Finding | None:
    """Return the first of all lines that say what failed, root causes before the rest."""
    said = _not_survived([one for one in candidates if one.tier < _ASIDE])
    if not said:
        return None
    first = min(said, key=lambda one: (one.tier, one.seconds, one.order, one.finding.number))
    if first.finding.signature and not first.finding.signature.generic:
        return first.finding
    found = _known_near(first, said)
    specific = found.signature and not found.signature.generic
    if specific:
        return found
    return _said_aside(found, candidates) or _said_near(found, said) or found


def _not_survived(said: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return all but the unknown errors that their program reported long before it ended.

    An end for want of an answer may well come of what was reported a while ago.
    """
    ended: dict[str, float] = {}
    for one in said:
        late = _WAITED.search(one.finding.line)
        if one.tier == 0 and one.ends and not late and one.seconds < _NO_TIME:
            rank = one.finding.rank
            ended[rank] = max(ended.get(rank, one.seconds), one.seconds)
    return [
        one
        for one in said
        if one.ends
        or one.finding.signature
        or one.seconds + _GOES_ON_SECONDS > ended.get(one.finding.rank, -_NO_TIME)
    ]


def _said_aside(found: Finding, candidates: Sequence[Candidate]) -> Finding | None:
    """Return the first warning of a library before the failure in which its engine ended."""
    if not _OF_LIBRARY.search(found.line):
        return None
    before = (
        one.finding
        for one in candidates
        if one.tier == _ASIDE and one.finding.rank == found.rank
        if one.finding.number < found.number and raised.read(one.finding.line)
    )
    warning = next(before, None)
    return replace(warning, later=True) if warning else None


def _said_near(found: Finding, said: Sequence[Candidate]) -> Finding | None:
    """Return a line of the same failure that says why, where the one that was found does not."""
    known = found.signature
    if not (known.hands_on if known else not raised.read(found.line, found.frames)):
        return None
    near = (
        one.finding
        for one in sorted(said, key=lambda one: one.finding.number)
        if one.finding.rank == found.rank and not one.finding.signature and one.tier == 0
        if abs(one.seconds - found.seconds) <= _SAME_FAILURE_SECONDS or one.seconds == found.seconds
        if abs(one.finding.number - found.number) <= _REASON_LINES
        if (of := raised.read(one.finding.line)) and not of.family.plainest and not of.family.names
    )
    other = next(near, None)
    return replace(other, later=True) if other else None


def _known_near(first: Candidate, candidates: Sequence[Candidate]) -> Finding:
    """Return what is known of the lines near the first one, or that one."""
    known = [
        (one.finding.signature.generic, one.seconds, one.order, one.finding.number, one.finding)
        for one in candidates
        if one.tier == first.tier
        and one.finding.signature
        # Of a line without a time nobody can say that it came later.
        and (one.seconds <= first.seconds + _SAME_FAILURE_SECONDS or one.seconds == _NO_TIME)
    ]
    if not known:
        return _ended_near(first, candidates) or first.finding
    found = min(known, key=lambda one: one[:4])[4]
    return replace(found, later=not first.finding.signature)


def _ended_near(first: Candidate, candidates: Sequence[Candidate]) -> Finding | None:
    """Return the line with which a program ended near an error that by itself says nothing.

    A daemon complains of much, and goes on, before it ends for the reason of its last line;
    a server writes that it failed, and below it the exception.
    """
    if _FATAL.search(first.finding.line) or raised.read(first.finding.line):
        return None
    near = (
        one.finding
        for one in sorted(candidates, key=lambda one: one.finding.number)
        if one.tier == first.tier and one.finding.rank == first.finding.rank
        if one.finding.number > first.finding.number
        if _FATAL.search(one.finding.line) or (one.ends and raised.read(one.finding.line))
        if first.seconds <= one.seconds <= first.seconds + _SAME_FAILURE_SECONDS
    )
    found = next(near, None)
    return replace(found, later=True) if found else None


def last_words(logs: Mapping[str, str]) -> Finding | None:
    """Return the first of the last lines that tell of a failure without a level, or None.

    Only of logs in which no line is a failure by its form, and nothing after it goes on.
    """
    for rank, text in logs.items():
        if serves(text):
            continue
        tail = list(numbered(text.splitlines()))[-_LAST_LINES:]
        last = _heard((n, lines.read(raw)) for n, raw in tail)
        rest = [(n, line) for n, line in last if line.text.strip() and not line.is_noise]
        well = [
            n for n, line in last if _GOES_ON.search(line.text) and not _TELLS.search(line.text)
        ]
        for number, line in rest:
            said = line.text.strip()
            counted = _NONE_OF.sub("", said)
            if line.level and not line.library:
                continue
            if not _TELLS.search(counted) or _HEDGED.search(counted):
                continue
            if well and number < well[-1]:
                continue
            if _tells_in_a_clause(counted):
                return Finding(rank, said, number, None, line.writer, line.address, later=True)
    return None


def _tells_in_a_clause(said: str) -> bool:
    """Tell whether one clause of a line both says that something failed and what."""
    reading = raised.read(said)
    if not reading or reading.family.plainest or reading.family.names:
        return False
    clauses = (one for one in _CLAUSES.split(said) if _TELLS.search(one))
    return any((of := raised.read(one)) and of.family is reading.family for one in clauses)


def known_failures(candidates: Sequence[Candidate]) -> list[Finding]:
    """Return the first line of each known failure that the logs show, in the order of time."""
    known = sorted(
        (one for one in candidates if one.finding.signature),
        key=lambda one: (one.tier, one.seconds, one.order, one.finding.number),
    )
    first: dict[str, Finding] = {}
    for one in known:
        if one.finding.signature:
            first.setdefault(one.finding.signature.id, one.finding)
    return list(first.values())


def in_order(candidates: Sequence[Candidate]) -> list[Finding]:
    """Return every line that says that something failed, in the order of time."""
    found = sorted(candidates, key=lambda one: (one.seconds, one.order, one.finding.number))
    return [one.finding for one in found if one.tier < _ASIDE]


def last_known(logs: Mapping[str, str]) -> Finding | None:
    """Return the last known line of a log that only went silent, or None.

    A log that says that its program works explains no silence.
    """
    everything = "\n".join(logs.values())
    for rank, text in logs.items():
        if serves(text):
            continue
        last = list(numbered(text.splitlines()))[-_LAST_LINES:]
        for number, raw in reversed(last):
            line = lines.read(raw)
            if (joined := _JOINED.search(line.text)) and not _all_joined(everything, joined):
                continue
            for known in all_matches(line.text, kinds=("stall",)):
                if known.holds_beside(everything):
                    return Finding(
                        rank, line.text.strip(), number, known, line.writer, line.address
                    )
    return None


def _all_joined(text: str, joined: re.Match[str]) -> bool:
    """Tell whether all ranks have joined a communicator of this size."""
    of_size = (one for one in _JOINED.finditer(text) if one["ranks"] == joined["ranks"])
    return len({one["rank"] for one in of_size}) >= int(joined["ranks"])


def serves(text: str) -> bool:
    """Tell whether a log says that what wrote it has begun to work."""
    if not _MAY_SERVE.search(text):
        return False
    may = (raw for raw in text.splitlines() if _MAY_SERVE.search(raw))
    return any(_SERVES.search(lines.read(raw).text) for raw in may)


def candidates_of(
    logs: Mapping[str, str], clocks: Mapping[str, float] | None = None
) -> list[Candidate]:
    """Return every line of the logs that says that something failed."""
    everything = "\n".join(logs.values())
    # Once for each signature, however often its line is repeated: it reads all logs.
    holds = cache(lambda signature: signature.holds_beside(everything))
    # What was taken out of one log is in order also where its lines carry no time.
    whole = {name: place for place, name in enumerate(dict.fromkeys(map(log_of, logs)))}
    return [
        candidate
        for rank, text in logs.items()
        for candidate in _candidates(rank, text, whole[log_of(rank)], holds, clocks or {})
    ]


def _candidates(
    rank: str,
    text: str,
    order: int,
    holds: Callable[[Signature], bool],
    clocks: Mapping[str, float],
) -> list[Candidate]:
    found: list[Candidate] = []
    # Of each writer's traceback the frames, until its exception ends them.
    frames: dict[str | None, list[str]] = {}
    read = _heard((number, lines.read(raw)) for number, raw in numbered(text.splitlines()))
    # What stands before the first time was written before it.
    moment = next((line.moment for _, line in read if line.moment), None)
    seconds = _seconds(moment) - clocks.get(rank, 0.0) if moment else _NO_TIME
    # The last time at which the log says that its program works, and what it reported before.
    works, reported = -_NO_TIME, set[int]()
    for place, (number, line) in enumerate(read, start=1):
        if line.moment:
            ahead = clocks.get(line.address or rank, clocks.get(rank, 0.0))
            seconds = _seconds(line.moment) - ahead
        if _SERVES.search(line.text):
            found.clear()
        if back := _IS_UP.search(line.text):
            found = [one for one in found if not _is_over(one.finding.line, back)]
        if line.daemon and line.level == "INFO" and seconds < _NO_TIME:
            works = seconds
        if line.is_noise:
            continue
        warning = line.level == "WARNING" and not line.library
        said = line.text.strip()
        if line.is_head or line.is_bare:
            after = [one for _, one in read[place : place + _REASON_LINES]]
            if line.is_bare:
                after = list(takewhile(lambda one: one.is_indented, after))
            said = lines.clipped(" ".join((said, *lines.reason(after, line.writer))))
        if line.is_head_of_traceback:
            frames[line.writer] = []
            continue
        if line.is_frame or (line.writer in frames and line.is_indented):
            # Frames and the source that they show say where, not what.
            frames.setdefault(line.writer, []).append(line.text)
            del frames[line.writer][:-_MOST_FRAMES]
            continue
        raised_in = "\n".join(frames.pop(line.writer, ()))
        known = _known(line, said)
        signature = next(
            (
                one
                for one in known
                if (one.warns or not warning) and one.raised_in(raised_in) and holds(one)
            ),
            None,
        )
        aside = line.library and line.level == "WARNING" and not signature
        if not signature and not line.is_failure and not aside:
            continue
        # What is known is a cause, even in words that usually follow from another one.
        follows = signature.follows if signature else line.is_follow_up
        if signature and signature.generic and line.is_wrapper:
            follows = True
        finding = Finding(
            rank, said, number, signature, line.writer, line.address, seconds, raised_in
        )
        tier = _ASIDE if aside else int(follows)
        found.append(Candidate(tier, seconds, order, finding, line.is_end))
        if line.daemon and not signature and not line.is_end:
            reported.add(number)
    # A daemon that only reports an error and goes on has not failed.
    return [
        one
        for one in found
        if one.finding.number not in reported or one.seconds + _SAME_FAILURE_SECONDS > works
    ]


def _heard(read: Iterable[tuple[int, lines.Line]]) -> list[tuple[int, lines.Line]]:
    """Return lines without the tracebacks of errors that do no harm."""
    heard: list[tuple[int, lines.Line]] = []
    harmless = set[str | None]()
    for number, line in read:
        if line.level or line.moment:
            harmless.discard(line.writer)
        if line.writer in harmless:
            continue
        if line.is_head_of_harmless:
            harmless.add(line.writer)
        heard.append((number, line))
    return heard


def _is_over(line: str, back: re.Match[str]) -> bool:
    """Tell whether a line says of a backend, or of all of them, that it is down."""
    of_server = re.search(rf"\b[Ss]erver {re.escape(back['server'])} (?:is DOWN|failed)", line)
    all_down = rf"\b(?:backend|proxy) '?{re.escape(back['backend'])}'? has no server available"
    return bool(of_server or re.search(all_down, line))


def _known(line: lines.Line, said: str) -> Sequence[Signature]:
    """Return the known failures of a line; what only its place in a library tells is first."""
    known = all_matches(said, FAILURES)
    if not line.source:
        return known
    placed = all_matches(f"{line.source} {said}", FAILURES)
    found = [*(one for one in placed if one not in known), *known]
    return sorted(found, key=lambda one: (one.generic, one.follows))


def _seconds(moment: lines.Moment) -> float:
    """Place a moment on a line of seconds; a year that ends between two lines is not seen."""
    month, day, hour, minute, second, millisecond = moment
    try:
        # Any leap year will do: only differences matter.
        start = datetime(2024, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return _NO_TIME
    return start.timestamp() + millisecond / 1000
