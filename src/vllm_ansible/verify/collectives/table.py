"""Read the table of nccl-tests and its kin by its header: which columns, how often, in what unit.

Header and rows as printed by print_header of 2019's per-operation sources (`error`), by
src/common.cu (`#wrong`), and by writeResultHeader of src/util.cu (timestamps, per-iteration
columns, `cputime`) in https://github.com/NVIDIA/nccl-tests.
"""

from __future__ import annotations

import re
from math import isfinite

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import Problem
from vllm_ansible.verify.collectives.report import Row, Timing, UnreadableOutput

TIMES = {"time", "cputime"}
NEEDED = {"algbw", "busbw"}
SECONDS = {"(us)": 1e-6, "(ms)": 1e-3, "(s)": 1.0}
RATES = {"(GB/s)": 1.0, "(MB/s)": 1e-3}
START = re.compile(r"\s*\d+\s+\d+\s+[A-Za-z]\w*")
STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|N/A|-?nan|-?inf", re.IGNORECASE)
# A pass that was not run leaves 32 spaces (writeBenchMarkLineNullBody), wider than any column.
HOLE = re.compile(r"\S {30,}\S")
# Builds of before 2020 count (n-1)/n of the bytes of all_gather, so half of them with 2 ranks.
LEAST_BYTES, MOST_BYTES = 0.45, 1.02


@frozen
class Layout:
    """Columns left of the figures, one list of names for each pass, and factors of the units."""

    left: tuple[str, ...]
    passes: tuple[tuple[str, ...], ...]
    seconds: float = SECONDS["(us)"]
    rate: float = RATES["(GB/s)"]

    @property
    def figures(self) -> int:
        """Return how many figures a whole row has."""
        return sum(len(names) for names in self.passes)


def layout_of(line: str) -> Layout | None:
    """Return the layout that a line announces, or None; raise for one that cannot be read."""
    names = line.strip().lstrip("#").split()
    if names[:2] == ["bytes", "N"] and "algbw" in names:
        raise UnreadableOutput(
            Problem(
                "the table is of nccl-tests from before 2019, whose columns carry no units",
                expected="size count type ... time algbw busbw",
                found=" ".join(names),
                fix="build nccl-tests of 2019 or later",
            )
        )
    if names[:3] != ["size", "count", "type"] or not TIMES & set(names):
        return None
    starts = [place for place, name in enumerate(names) if name in TIMES]
    ends = [*starts[1:], len(names) - (names[-1] == "timestamp")]
    passes = tuple(tuple(names[a:b]) for a, b in zip(starts, ends, strict=True))
    if len(passes) > 2 or not all(set(one) >= NEEDED for one in passes):
        raise UnreadableOutput(
            Problem(
                "the table has columns that this project does not know",
                expected="size count type ... time algbw busbw, once or twice",
                found=" ".join(names),
                fix="use a released nccl-tests, or read its JSON (-J)",
            )
        )
    return Layout(tuple(names[: starts[0]]), passes)


def with_units(layout: Layout, line: str) -> Layout:
    """Return the layout with the units of the line under the header, unchanged for another line."""
    units = [word for word in line.strip().lstrip("#").split() if word.startswith("(")]
    if not units or units[0] != "(B)":
        return layout
    times = [SECONDS[word] for word in units if word in SECONDS]
    rates = [RATES[word] for word in units if word in RATES]
    if not times or not rates:
        raise UnreadableOutput(
            Problem(
                "the table has units that this project does not know",
                expected=f"{', '.join(SECONDS)} and {', '.join(RATES)}",
                found=" ".join(units),
                fix="use a released nccl-tests, or read its JSON (-J)",
            )
        )
    return Layout(layout.left, layout.passes, times[0], rates[0])


def figures_only(line: str) -> bool:
    """Return whether a line holds nothing but what belongs right of a row's start."""
    words = STAMP.sub("", line).split()
    return bool(words) and all(NUMBER.fullmatch(word) for word in words)


def row_of(text: str, layout: Layout) -> Row | str:
    """Return the row, or in a sentence why it is not whole or cannot be believed."""
    words = STAMP.sub("", text).split()
    redop, root, place = None, None, 3
    for name in layout.left[3:]:
        # alltoall of 2021 has a column redop and prints nothing in it
        if name == "redop" and place < len(words) and not NUMBER.fullmatch(words[place]):
            redop = None if words[place] == "none" else words[place]
            place += 1
        elif name == "root" and place < len(words):
            if not re.fullmatch(r"-?\d+", words[place]):
                return f"root is {words[place]!r}"
            root = int(words[place])
            place += 1
    figures = words[place:]
    if not all(NUMBER.fullmatch(word) for word in figures):
        return "a figure is no number"
    size = int(words[0])
    one = len(layout.passes[0])
    if len(figures) == layout.figures:
        groups = [figures[:one], figures[one:]]
    elif len(figures) == one and len(layout.passes) == 2:
        groups = [[], figures] if HOLE.search(text) else [figures, []]
    else:
        return f"{len(figures)} of {layout.figures} figures"
    timings = []
    for names, values in zip(layout.passes, groups, strict=False):
        timing = _timing(size, dict(zip(names, values, strict=True)), layout) if values else None
        if isinstance(timing, str):
            return timing
        timings.append(timing)
    timings.append(None)
    return Row(size, int(words[1]), words[2], redop, root, timings[0], timings[1])


def cut(text: str, layout: Layout) -> bool:
    """Return whether a row has figures of the first pass alone, as one that was cut off."""
    row = row_of(text, layout)
    return isinstance(row, Row) and len(layout.passes) == 2 and row.in_place is None


def _timing(size: int, values: dict[str, str], layout: Layout) -> Timing | str:
    """Return one pass, or why its figures cannot be believed."""
    processor = "cputime" in values
    time = float(values["cputime" if processor else "time"]) * layout.seconds
    rate, bus = float(values["algbw"]) * layout.rate, float(values["busbw"]) * layout.rate
    if not all(isfinite(one) and one >= 0 for one in (time, rate, bus)):
        return "a figure is not finite"
    if not processor and not _agree(size, values, layout):
        return f"{values['algbw']} for {size} bytes in {values['time']} do not belong together"
    wrong = values.get("#wrong", "N/A")
    deviation = values.get("error", "N/A")
    return Timing(
        time,
        rate,
        bus,
        None if wrong == "N/A" else int(float(wrong)),
        None if deviation == "N/A" else float(deviation),
    )


def _agree(size: int, values: dict[str, str], layout: Layout) -> bool:
    """Return whether time times rate can be the bytes, as far as the printed digits tell."""
    scale = layout.seconds * layout.rate * 1e9
    (time, time_half), (rate, rate_half) = (_digits(values[name]) for name in ("time", "algbw"))
    least = max(time - time_half, 0) * max(rate - rate_half, 0) * scale
    most = (time + time_half) * (rate + rate_half) * scale
    return least <= size * MOST_BYTES and most >= size * LEAST_BYTES


def _digits(word: str) -> tuple[float, float]:
    """Return a printed number and half of its last digit."""
    mantissa, _, exponent = word.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(word), 0.5 * 10.0 ** (int(exponent or 0) - decimals)
