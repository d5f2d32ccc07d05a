"""Say what a found line is caused by, what is excluded and why, and what to do, in one answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..redact import redact_text
from . import cuda_errors, lines, log_facts, named, own_words, raised
from .facts import Facts, merged
from .first import Finding
from .hosts import host_of
from .knowledge import Explanation, Told, explain
from .match import Signature

# Public threads in which others met the same; more are no help.
_MOST_SEEN = 4
NONE_REMAINS = "not known: the facts of the hosts exclude every cause that is known of this line"
# Of a line that has several causes.
USUAL = "Not certain, the usual cause of this line: "
# Such an answer names no cause.
_HANDS_ON = re.compile(r"^Not known from this line|that the line names")
# Behind this the words of the line follow.
_NAMES_IT = re.compile(r"the line names$")
_ON_PURPOSE = re.compile(r"\b(?:Value|NotImplemented|Runtime|Validation|Assertion|Key)Error\b")
_OF_TORCH = "RuntimeError: "
_WORDS_OF_A_REASON = 4
_NO_FIX = (
    "Compare the excluded causes with the hosts as they are now, and read the lines around this one"
)


@dataclass(frozen=True, slots=True)
class Explained:
    """An answer in sentences; empty where there is nothing to say."""

    cause: str
    fix: str
    # What else it may be, and the command that tells them apart.
    otherwise: str = ""
    excluded: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()


def explained(finding: Finding, logs: Mapping[str, str], facts: Facts) -> Explained | None:
    """Return the answer for a finding, or None where neither a signature nor its structure tells.

    facts: what is known of hosts beside what their logs say.
    """
    # What is cut out of a line later must hold no half of a secret, which nobody would know again.
    finding = replace(finding, line=redact_text(finding.line))
    signature = finding.signature
    line = finding.line
    follows = lines.read(line).is_follow_up and not cuda_errors.in_plain_words(line)
    if signature.generic if signature else not follows:
        reading = raised.read(finding.line, finding.frames, signature)
        area = ""
        if not reading and _is_on_purpose(signature, finding):
            # What the words of a line state says more than where it was raised.
            reading, area = raised.stated(finding.line), signature.fix if signature else ""
        if reading:
            certain = reading.family.states and not finding.later
            cause = _with_check(reading, finding)
            cause = cause if certain else f"{USUAL}{cause}"
            seen = signature.refs[:_MOST_SEEN] if signature else ()
            return Explained(cause, _advised(reading, finding.line, area), seen=seen)
    if signature is None:
        return None
    known = tuple(host for host in facts if host)
    everything = merged([log_facts.read(logs, known), facts])
    told = explain(signature, everything, host_of_finding(finding, facts), finding.line)
    return _answer(signature, told, finding)


def _with_check(reading: raised.Reading, finding: Finding) -> str:
    """Return a cause with what the program itself adds: its check, or which option to change."""
    advice, reason = own_words.advice(finding.line), own_words.reason(finding.line)
    if not reason and (check := raised.checked(finding.frames)):
        return f"{reading.cause} (what is not so: `{check}`)"
    if reason and reason not in reading.cause and named.options(advice):
        return f'{reading.cause} (the line says: "{reason}")'
    return reading.cause


def _is_on_purpose(signature: Signature | None, finding: Finding) -> bool:
    """Tell whether an error is one that a program raises with a reason, not one of its own code.

    signature: one that tells where it was raised, and no more; without one, frames have to show it.
    """
    if signature and (not signature.frames or _NAMES_IT.search(signature.cause)):
        return False
    if signature and signature.frames and "<module>" in signature.frames.pattern:
        return False
    if not signature and not finding.frames:
        return False
    # So do torch's operators raise; where a family knows their words, they are a sign of something.
    known = raised.read(finding.line, finding.frames) if _OF_TORCH in finding.line else None
    if known and not known.family.plainest and not known.family.states:
        return False
    words = own_words.reason(finding.line).split()
    return bool(_ON_PURPOSE.search(finding.line)) and len(words) >= _WORDS_OF_A_REASON


def _advised(reading: raised.Reading, line: str, area: str) -> str:
    """Return what to do, after what the line itself advises; area: for where it was raised."""
    advice = own_words.advice(line)
    if advice and advice not in reading.fix:
        return f"{advice} (as the line says). {reading.fix}"
    return reading.fix if advice or not area else f"{reading.fix}. {area}"


def host_of_finding(finding: Finding, facts: Facts) -> str:
    """Return the host that wrote a line: by the address that Ray puts before it, or by its log."""
    if finding.address:
        for host, known in facts.items():
            if "address" in known and known["address"].value == finding.address:
                return host
        return finding.address
    return host_of(finding.rank, tuple(host for host in facts if host))


def _answer(signature: Signature, told: Explanation, finding: Finding) -> Explained:
    excluded = tuple(f"{one.cause}: {one.why}" for one in told.excluded)
    seen = signature.refs[:_MOST_SEEN]
    if not told.causes:
        return Explained(NONE_REMAINS, _NO_FIX, "", excluded, seen)
    first, *rest = told.causes
    cause, fix = _with_own_words(first, finding.line, signature.generic, finding.frames)
    certain = first.because or (_is_certain(signature, finding) and not rest)
    if not certain and not _HANDS_ON.search(first.cause):
        cause = f"{USUAL}{cause}"
    return Explained(cause, fix, _otherwise(first, rest), excluded, seen)


def _with_own_words(told: Told, line: str, generic: bool, frames: str = "") -> tuple[str, str]:
    """Return a cause and its fix; one that only hands on repeats the words of the line."""
    if told.because:
        return f"{told.cause}. {told.because}", told.fix
    reason = own_words.reason(line)
    if not _NAMES_IT.search(told.cause):
        if generic and reason and raised.states(reason):
            return f'{told.cause} (the line says: "{reason}")', told.fix
        if generic and not reason and (check := raised.checked(frames)):
            return f"{told.cause} (what is not so: `{check}`)", told.fix
        return told.cause, told.fix
    cause = f'{told.cause}: "{reason}"' if reason else told.cause
    return cause, named.fix(line) or told.fix


def usual_cause(signature: Signature, text: str) -> str:
    """Return what a signature says of a text whose logs were not read, marked where uncertain."""
    found = signature.pattern.search(text) if signature.pattern else None
    start, end = found.span() if found else (0, len(text))
    line = text[text.rfind("\n", 0, start) + 1 : end]
    certain = _states(signature, line) or _HANDS_ON.search(signature.cause)
    return signature.cause if certain else f"{USUAL}{signature.cause}"


def _is_certain(signature: Signature, finding: Finding) -> bool:
    """Tell whether a line that ended a program states the cause, instead of only showing it."""
    return not finding.later and _states(signature, finding.line)


def _states(signature: Signature, line: str) -> bool:
    """Tell whether a line states its cause, by what is known of such lines and by its words."""
    if signature.inferred or signature.follows:
        return False
    if signature.plain:
        return True
    weak = signature.generic or signature.warns
    return not (weak or raised.is_symptom(line))


def _otherwise(first: Told, rest: list[Told]) -> str:
    if not rest:
        return ""
    second = rest[0]
    tells = first.check or second.check
    return f"{second.cause}. What distinguishes them: {tells}" if tells else second.cause
