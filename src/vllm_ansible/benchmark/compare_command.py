"""The command `vllm-ansible compare`: two kept ramps, and whether B is worse than A."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from vllm_ansible.benchmark.compare import WORSE, as_text, compared, read
from vllm_ansible.benchmark.difference import UNKNOWN
from vllm_ansible.problem import PlanError

NOT_WORSE, IS_WORSE, REFUSED, CANNOT_TELL = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; 0 is not worse, 1 is worse, 2 is refused, 3 cannot be told."""
    options = parser().parse_args(arguments)
    places = (options.a, options.b)
    try:
        a, b = (read(place, options.engine) for place in places)
        found = compared(a, b, options.margin / 100)
    except PlanError as refusal:
        sys.stderr.write(f"vllm-ansible: {refusal}\n")
        return REFUSED
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if options.json else as_text(found, places))
    return {WORSE: IS_WORSE, UNKNOWN: CANNOT_TELL}.get(found["verdict"], NOT_WORSE)


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(
        prog="vllm-ansible compare",
        description="Compare two kept ramps. Exit status: 0 not worse, 1 worse, 2 refused, "
        "3 unknown, because the noise is too large.",
    )
    for name in ("a", "b"):
        made.add_argument(
            name, metavar=name.upper(), help="directory of a run, or its file ramp-ENGINE.json"
        )
    made.add_argument("--engine", default="", metavar="NAME", help="where a run has several")
    made.add_argument(
        "--margin",
        type=_percentage,
        default=3.0,
        metavar="PERCENT",
        help="the least difference that matters (3)",
    )
    made.add_argument("--json", action="store_true", help="print one JSON document")
    return made


def _percentage(text: str) -> float:
    value = float(text)
    if not 0 <= value < 100:
        raise ValueError(text)
    return value
