"""The command `vllm-ansible diagnose`: why a cluster, or logs of whatever deployment, failed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..record.diagnosis import bundle
from ..record.diagnosis.evidence import Evidence, of_directory
from ..record.diagnosis.page import explain, page
from ..record.diagnosis.reading import UnreadableLogs, read_evidence, read_logs

NOTHING, FOUND, REFUSED = 0, 1, 2
_PLAYBOOK = "playbooks/diagnose.yml"
# What the playbook leaves in the directory of its run.
ANSWER = "diagnosis.json"

# Runs a playbook; returns the directory of its run, if there is one, and whether it failed.
Look = Callable[[str, argparse.Namespace], tuple[Path | None, bool]]


class Refused(ValueError):
    """It cannot be done as it was asked for."""


def main(words: Sequence[str], look: Look) -> int:
    """Print the first cause; 0 there is none, 1 there is one, 2 is refused.

    look: runs a playbook that looks; nothing to logs alone.
    """
    options = _parser().parse_args(words)
    try:
        if options.bundle and options.bundle.exists():
            raise bundle.BundleExists(
                f"expected a name for a new file, found a file at {options.bundle}"
            )
        return _of_logs(options) if options.logs else _of_cluster(options, look)
    except (UnreadableLogs, bundle.BundleExists, Refused, OSError) as refusal:
        sys.stderr.write(f"vllm-ansible: {refusal}\n")
        return REFUSED


def _of_logs(options: argparse.Namespace) -> int:
    if options.inventory or options.limit or options.variables:
        raise Refused("expected --logs or an inventory, found both")
    logs, evidence = read_logs(options.logs), read_evidence(options.logs)
    answer = explain(logs, evidence) | {"unread": logs.unread}
    directories = tuple(path for path in options.logs if path.is_dir())
    _finish(options, logs, answer, evidence, directories)
    return FOUND if answer["found"] else NOTHING


def _of_cluster(options: argparse.Namespace, look: Look) -> int:
    directory, failed = look(_PLAYBOOK, options)
    if directory is None or not (directory / ANSWER).is_file():
        return REFUSED
    answer = json.loads((directory / ANSWER).read_text(encoding="utf-8"))
    kept = directory / "logs"
    logs = read_logs([kept]) if kept.is_dir() and any(kept.iterdir()) else {}
    _finish(options, logs, answer, of_directory(directory), (directory,))
    return FOUND if failed else NOTHING


def _finish(
    options: argparse.Namespace,
    logs: Mapping[str, str],
    answer: Mapping[str, Any],
    evidence: Evidence,
    beside: tuple[Path, ...],
) -> None:
    """Print the answer, and write the archive where one is asked for."""
    sys.stdout.write(f"{json.dumps(answer, indent=2) if options.json else page(answer)}\n")
    if options.bundle:
        names = bundle.write(options.bundle, logs, answer, evidence, beside)
        told = f"{options.bundle}: {len(names)} files, redacted, for its owner alone"
        sys.stderr.write(f"{told}; review it before you share it\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm-ansible diagnose",
        description="Name the first cause of a failure: of a cluster, or from logs alone.",
    )
    parser.add_argument(
        "--logs", nargs="+", metavar="PATH", type=Path, help="logs alone, of any deployment"
    )
    parser.add_argument("-i", "--inventory", help="path or name of an inventory")
    parser.add_argument("--limit", help="only these hosts")
    parser.add_argument(
        *("-e", "--extra-vars"),
        dest="variables",
        action="append",
        default=[],
        metavar="VARS",
        help="name=value, JSON or @file",
    )
    parser.add_argument(
        "--checkout", help="where the playbooks are, if not found from this directory"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE", help="write logs and evidence, redacted, to hand on"
    )
    return parser
