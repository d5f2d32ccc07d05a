"""The command `vllm-ansible diagnose`: why logs, of whatever deployment, say that it failed."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..record.redact import redact_text
from .evidence import Evidence
from .explained import explained
from .first import Finding, first_failure, known_failures, last_known
from .verdict import shorten

NOTHING, FOUND, REFUSED = 0, 1, 2
# Of a longer log the head and the tail are read: the first failure and the last words.
_HALF_BYTES = 8 * 1024 * 1024
_MOST_FILES = 2000
_WIDTH = 100


class UnreadableLogs(ValueError):
    """There is nothing to read, or too much of it."""


def main(words: Sequence[str]) -> int:
    """Print the cause that the logs show; 0 shows none, 1 shows one, 2 is refused."""
    parser = argparse.ArgumentParser(
        prog="vllm-ansible diagnose",
        description="Name the first cause of a failure from logs alone, of any deployment of vLLM.",
    )
    parser.add_argument("--logs", nargs="+", required=True, metavar="PATH", type=Path)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(words)
    try:
        logs = read_logs(options.logs)
    except UnreadableLogs as refusal:
        sys.stderr.write(f"vllm-ansible: {refusal}\n")
        return REFUSED
    answer = explain(logs)
    text = json.dumps(answer, indent=2) if options.json else page(answer)
    sys.stdout.write(f"{text}\n")
    return FOUND if answer["found"] else NOTHING


def read_logs(paths: Sequence[Path]) -> dict[str, str]:
    """Return the text of each file, by its path below the directory that was named."""
    files: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.is_file())
            files.update({str(one.relative_to(path)): one for one in inside})
        elif path.is_file():
            files[path.name if path.name not in files else str(path)] = path
        else:
            raise UnreadableLogs(f"expected a file or directory of logs, found nothing at {path}")
    if not files:
        raise UnreadableLogs(f"expected logs, found no file below {paths[0]}")
    if len(files) > _MOST_FILES:
        raise UnreadableLogs(
            f"expected at most {_MOST_FILES} logs, found {len(files)}: name a smaller directory"
        )
    return {name: _text(file) for name, file in files.items()}


def explain(logs: dict[str, str], evidence: Evidence | None = None) -> dict[str, Any]:
    """Return the first cause, where it stands, and which other known failures the logs show."""
    known_of = evidence or Evidence()
    clocks = known_of.clocks_of(logs)
    finding = first_failure(logs, clocks)
    silent = None if finding else last_known(logs)
    told = finding or silent
    signature = told.signature if told else None
    others = [one for one in known_failures(logs, clocks) if one.signature != signature]
    answer = explained(told, logs, known_of.facts) if told else None
    return {
        "logs": len(logs),
        "lines": sum(len(text.splitlines()) for text in logs.values()),
        "silent": silent is not None,
        "found": redact_text(shorten(told.line)) if told else "",
        "where": told.where if told else "",
        "signature": signature.id if signature else "",
        "cause": answer.cause if answer else "",
        "otherwise": answer.otherwise if answer else "",
        "excluded": list(answer.excluded) if answer else [],
        "fix": answer.fix if answer else "",
        "threads": list(signature.refs) if signature else [],
        "others": [_other(one) for one in others],
    }


def page(answer: dict[str, Any]) -> str:
    """Return the answer as a person reads it."""
    read = f"{answer['logs']} log(s), {answer['lines']} lines"
    if not answer["found"]:
        return f"No line of {read} says that something failed."
    first = "The logs end, and no line says what failed" if answer["silent"] else "First failure"
    rows = [("", f"{first}, in {read}:")]
    rows += [("found", answer["found"]), ("where", answer["where"])]
    if answer["cause"]:
        rows.append(("cause", answer["cause"]))
        rows += [("or", answer["otherwise"])] if answer["otherwise"] else []
        rows += [("not", one) for one in answer["excluded"]]
        rows.append(("fix", answer["fix"]))
        rows += [("seen in", ", ".join(answer["threads"]))] if answer["threads"] else []
    else:
        rows += [("cause", "not known: no signature knows this line")]
    text = [_row(*row) for row in rows]
    if answer["others"]:
        text.append("Also known, later or less likely:")
        text += [_row("", f"{one['where']}: {one['cause']}") for one in answer["others"]]
    return "\n".join(text)


def _other(finding: Finding) -> dict[str, str]:
    known = finding.signature
    return {
        "signature": known.id if known else "",
        "cause": known.cause if known else "",
        "where": finding.where,
        "found": redact_text(shorten(finding.line)),
    }


def _row(name: str, words: str) -> str:
    if not name and words.endswith(":"):
        return words
    return textwrap.fill(words, _WIDTH, initial_indent=f"  {name:<8}", subsequent_indent=" " * 10)


def _text(file: Path) -> str:
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as content:
            head = content.read(2 * _HALF_BYTES + 1)
            if len(head) <= 2 * _HALF_BYTES:
                return head.decode(errors="replace")
            tail = b""
            while block := content.read(_HALF_BYTES):
                tail = (tail + block)[-_HALF_BYTES:]
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise UnreadableLogs(f"expected a readable log, found {error}") from error
    return (head[:_HALF_BYTES] + b"\n" + tail).decode(errors="replace")
