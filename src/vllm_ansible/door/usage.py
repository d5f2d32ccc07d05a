"""The command `vllm-ansible usage`: what each client used by day and model, as CSV.

It reads directories of journals, `door/usage` below a cluster's directory on each host of a door,
brought here by any means. roles/door/files/program/journal.lua writes them.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

OK, REFUSED = 0, 2
COLUMNS = ("client", "day", "model", "requests", "tokens_in", "tokens_out", "refused", "usd")
_FILE = re.compile(r"(\d{4}-\d\d-\d\d)\.journal(\..+)?")
_LINE = re.compile(rb"(\d+\.\d+) \S+ (\S+) (\d+) (\d+) (\d+)(?: (\d+) ([\w./%-]+))?")
MILLION = 1_000_000


@dataclass
class Used:
    """What a client used of a model on a day."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    refused: int = 0


Key = tuple[str, str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 is done, 2 is refused."""
    options = parser().parse_args(arguments)
    prices = (options.usd_per_million_in, options.usd_per_million_out)
    try:
        if (prices[0] is None) != (prices[1] is None):
            raise ValueError("give both prices, or neither")
        found = total(journals(options.directories), options.since, options.until)
    except (OSError, ValueError) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        sys.stderr.write(f"vllm-ansible: {said}\n")
        return REFUSED
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for (client, day, model), used in sorted(found.items()):
        counted = (used.requests, used.tokens_in, used.tokens_out, used.refused)
        table.writerow((client, day, model, *counted, cost(used, *prices)))
    return OK


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(prog="vllm-ansible usage", description=__doc__.splitlines()[0])
    made.add_argument(
        "directories",
        nargs="+",
        type=Path,
        metavar="DIRECTORY",
        help="copy of door/usage of a door; of one alone, what it has read of other doors counts",
    )
    made.add_argument("--since", type=_day, default="0001-01-01", metavar="DAY", help="YYYY-MM-DD")
    made.add_argument("--until", type=_day, default="9999-12-31", metavar="DAY", help="inclusive")
    for side, what in (("in", "prompts"), ("out", "answers")):
        made.add_argument(
            f"--usd-per-million-{side}",
            type=_price,
            metavar="USD",
            help=f"price of a million tokens of {what}; without one, no dollars are shown",
        )
    return made


def _day(text: str) -> str:
    try:
        return str(datetime.strptime(text, "%Y-%m-%d").date())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2026-11-30") from None


def _price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1
    if not 0 <= price < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no price in dollars")
    return price


def journals(directories: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return the journals to count, with their days: no line twice.

    A door keeps copies of the journals of others. They count where they are the only source.
    """
    if len({one.resolve() for one in directories}) != len(directories):
        raise ValueError("a directory is named twice")
    found = []
    for directory in directories:
        matches = [(_FILE.fullmatch(one.name), one) for one in directory.iterdir()]
        own = [
            (match[1], one)
            for match, one in matches
            if match and (not match[2] or len(directories) == 1)
        ]
        if not own:
            raise ValueError(f"{directory} holds no journal of a door, such as 2026-11-30.journal")
        found += own
    return found


def total(files: Iterable[tuple[str, Path]], since: str, until: str) -> dict[Key, Used]:
    """Return what was used by client, day and model; lines that a full disk cut are left out."""
    found: dict[Key, Used] = {}
    for day, path in files:
        if not since <= day <= until:
            continue
        with path.open("rb") as lines:
            for line in lines:
                match = _LINE.fullmatch(line.rstrip(b"\n"))
                if not match or not line.endswith(b"\n"):
                    continue
                client, model = match[2].decode(), unquote((match[7] or b"-").decode())
                used = found.setdefault((client, day, "" if model == "-" else model), Used())
                used.requests += int(match[3])
                used.tokens_in += int(match[4])
                used.tokens_out += int(match[5])
                used.refused += int(match[6] or 0)
    return found


def cost(used: Used, price_in: float | None, price_out: float | None) -> str:
    """Return dollars of tokens; nothing without prices."""
    if price_in is None or price_out is None:
        return ""
    return f"{(used.tokens_in * price_in + used.tokens_out * price_out) / MILLION:.6f}"
