"""What a task's result says to a person: its evidence, or why it failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..provision.fleet import NOWHERE
from .diagnosis.explained import usual_cause
from .diagnosis.match import Signature, match
from .redact import redact_text

# The fields of a failing result that are for people, in the order in which they are shown.
FIELDS = (
    *("expected", "found", "where", "cause", "otherwise", "excluded", "fix", "seen"),
    "command",
)
# Where a program's own words lie in a result; msg first, for it is the most exact.
_OUTPUT = ("msg", "found", "stderr", "module_stderr", "stdout", "module_stdout")
_LONGEST_MESSAGE = 600
# Public threads in which others met the same; more are no help.
_MOST_SEEN = 4
# What ansible-core says of a command before 2.21 and since, and puts before others' words.
_EXIT_STATUS_ALONE = re.compile(
    r"(?:The command exited with a )?non-zero return code\.?", re.IGNORECASE
)
_PREFIX = re.compile(r"^(?:Task failed: |Module failed: |Action failed: )+")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task failed, with a likely cause and a fix where they are known."""

    msg: str
    expected: str | None = None
    found: str | None = None
    where: str | None = None
    cause: str | None = None
    # What else it may be; causes that facts exclude, and why; where others met it.
    otherwise: str | None = None
    excluded: str | None = None
    fix: str | None = None
    seen: str | None = None
    command: str | None = None
    signature: str | None = None

    def as_event(self) -> dict[str, str]:
        """Return the fields that say something."""
        return {key: value for key, value in asdict(self).items() if value}


def failures(result: Mapping[str, Any], reason: str | None = None) -> list[Failure]:
    """Return why a result failed, once for each failed item of a loop that says something else."""
    items = _failed_items(result)
    # Of several items, the error at the root is that of one.
    found = [failure(item, reason if len(items) == 1 else None) for item in items]
    return list(dict.fromkeys(found))


def failure(
    result: Mapping[str, Any],
    reason: str | None = None,
    recognise: Callable[[str], Signature | None] = match,
) -> Failure:
    """Return why a result failed; a known signature adds the cause and fix that it lacks itself.

    `reason` is the error at the root, which the message of a module may not repeat.
    """
    if "censored" in result:
        return Failure(
            msg="The task failed; what it said is hidden, for it may hold a secret",
            fix="Look at the host's own log; the task is marked no_log",
        )
    fields = {name: _words(result.get(name)) for name in FIELDS}
    if reason and not fields["found"] and reason not in str(result.get("msg")):
        fields["found"] = _cut(reason)
    output = "\n".join(str(result.get(name) or "") for name in _OUTPUT)
    signature = recognise(output)
    if signature:
        if not fields["cause"]:
            fields["seen"] = ", ".join(signature.refs[:_MOST_SEEN]) or None
        fields["cause"] = fields["cause"] or usual_cause(signature, output)
        fields["fix"] = fields["fix"] or signature.fix
    command = fields.pop("command") or _words(result.get("cmd"))
    return Failure(
        msg=_message(result),
        command=command,
        signature=signature.id if signature else _words(result.get("signature")),
        **fields,
    )


def unreachable(result: Mapping[str, Any], host: str, address: str) -> Failure:
    """Return why a host could not be reached."""
    if address == NOWHERE:
        # In the same words for all of them: they are told once.
        return Failure(
            msg="There is no machine for it yet",
            expected="machines that are rented or allocated, and accepted",
            found="none",
            fix="run the stage provision first: ansible-playbook site.yml --tags provision",
        )
    found = _message(result)
    signature = match(found)
    if signature and signature.id == "launcher-ssh":
        # Here Ansible is what connects, and its own words say more.
        signature = None
    cause = "the machine is down, its address is wrong, or its key or user is not accepted"
    fix = f"make `ansible -i <inventory> -m ping {host}` succeed, then run the command again"
    return Failure(
        msg="The host cannot be reached",
        expected=f"an answer from {address}",
        found=found,
        cause=usual_cause(signature, found) if signature else cause,
        fix=signature.fix if signature else fix,
        signature=signature.id if signature else None,
    )


def evidence(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the gates in a result, or in the items of its loop, found."""
    items = result.get("results")
    for item in [result, *(items if isinstance(items, list) else [])]:
        found = item.get("evidence") if isinstance(item, Mapping) else None
        if isinstance(found, Mapping) and "summary" in found:
            yield {
                "gate": str(found.get("gate") or ""),
                "summary": str(found["summary"]),
                "values": found.get("values") or {},
            }


def _failed_items(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the failed items of a loop, or the result itself."""
    items = result.get("results")
    failed = [
        item
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, Mapping) and (_has_failed(item) or item.get("unreachable"))
    ]
    return failed or [result]


def _has_failed(item: Mapping[str, Any]) -> bool:
    """Tell whether an item failed: since 2.21, ansible-core shows callbacks the exception alone."""
    return bool(item["failed"] if "failed" in item else item.get("exception"))


def _message(result: Mapping[str, Any]) -> str:
    message = _PREFIX.sub("", str(result.get("msg") or "").strip())
    if not message or _EXIT_STATUS_ALONE.fullmatch(message):
        message = _last_line(result) or message or "The task failed and said nothing"
    return _cut(message)


def _cut(text: str) -> str:
    """Return the beginning of a text; secrets are hidden first, for half of one is not known."""
    return redact_text(text)[:_LONGEST_MESSAGE]


def _last_line(result: Mapping[str, Any]) -> str | None:
    """Return what a failed command said last, with its exit status."""
    for name in ("stderr", "stdout"):
        lines = [line for line in str(result.get(name) or "").splitlines() if line.strip()]
        if lines:
            return f"{lines[-1].strip()} (exit status {result.get('rc', 'unknown')})"
    return None


def _words(value: Any) -> str | None:
    """Return a value as a person would write it."""
    if value is None or value == "" or value == []:
        return None
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value)
    return str(value)
