"""Lines for a person at a console: a stage, what it found, how long it took."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterator

# Set by the stdout callback: a worker's own stdout leads nowhere, so it cannot ask its terminal.
VARIABLE = "VLLM_ANSIBLE_CONSOLE"
TERMINAL = "terminal"
PLAIN = "plain"

_LABEL = 10
_WIDEST = 120
# Back to the first column, and clear what an earlier progress line left there.
CLEAR = "\r\x1b[K"


def is_terminal() -> bool:
    """Tell whether the run's console is a terminal, where a line can be written over."""
    return os.environ.get(VARIABLE) == TERMINAL


def width() -> int:
    """Return the number of columns to write in."""
    return min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)


def duration(seconds: float) -> str:
    """Return a length of time as people say it."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m"


def labelled(label: str, text: str, indent: int = 1) -> Iterator[str]:
    """Yield a text beside its label, wrapped under itself; commands stay whole for copying."""
    head = " " * indent + f"{label:<{_LABEL + 1 - indent}} "
    room = max(width() - len(head), 20)
    for paragraph in text.strip().splitlines() or [""]:
        for line in textwrap.wrap(
            paragraph, room, break_long_words=False, break_on_hyphens=False
        ) or [""]:
            yield (head + line).rstrip()
            head = " " * len(head)


def stage_line(stage: str, text: str, ending: str = "") -> list[str]:
    """Return the lines of a stage; its ending, such as the seconds, stands at the right edge."""
    room = len(ending) + 2 if ending else 0
    lines = list(labelled(stage, _fit(text)))
    if not ending:
        return lines
    if len(lines[0]) + room > width():
        lines = _narrow(stage, text, room)
    lines[0] = f"{lines[0]:<{width() - len(ending)}}{ending}"
    return lines


def progress_line(stage: str, text: str, done: float | None, total: float | None, unit: str) -> str:
    """Return one line for the whole cluster: how far, and in what unit."""
    count = ""
    if done is not None:
        count = (
            amount(done, unit) if not total else f"{_number(done, unit)} of {amount(total, unit)}"
        )
    line = f" {stage:<{_LABEL}} " + "   ".join(part for part in (text, count) if part)
    return line[: width() - 1] if is_terminal() else line


def by_number(name: str) -> list[str | int]:
    """Return a key that sorts `host2` before `host10`."""
    # Words and numbers take turns, so that two keys never compare one with the other.
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


def amount(value: float, unit: str = "") -> str:
    """Return a number with its unit, bytes in the size that reads best."""
    if unit == "bytes":
        size, name = _scale(value)
        return f"{value / size:.1f} {name}" if size > 1 else f"{value:.0f} bytes"
    return f"{_number(value, unit)} {unit}".strip()


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        return amount(value, unit)
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"


def _scale(value: float) -> tuple[int, str]:
    for size, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if value >= size:
            return size, name
    return 1, "bytes"


def _narrow(stage: str, text: str, room: int) -> list[str]:
    head = f" {stage:<{_LABEL}} "
    wrapped = textwrap.wrap(_fit(text), max(width() - len(head) - room, 20)) or [""]
    return [head + wrapped[0], *(" " * len(head) + line for line in wrapped[1:])]


def _fit(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
