"""Keep of a long log what a diagnosis needs, in bounded memory: its head, its tail, and between
them the lines that are no routine; where lines are left out, one line says how many."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

# A line may be a whole document; more of one is no help.
_LONGEST_LINE = 64 * 1024
_LONGEST_WORD = 4096
# Lines that a program writes while it works: by their level, and a server's answers.
_ROUTINE = re.compile(
    rb"^.{0,120}?\b(?:INFO|DEBUG|TRACE)\b|^.{0,80}?\[(?:INF|DBG|TRC|NOTICE)\]"
    rb"|^.{0,60}?\d (?:I|D) \d+ \d+\]|\" 200 (?:OK)?"
)
# Before the level they say that it is none: "NCCL error (run with NCCL_DEBUG=INFO for details)".
_ALARM = re.compile(rb"WARN|ERR|[Ee]rror|CRIT|FATAL|Exception")
# With these a program begins to work: what it said before is no failure (see _SERVES in first.py).
_BEGINS = re.compile(
    rb"Application startup complete|Uvicorn running on |init engine \(profile"
    rb"|ready to serve client requests|Server is ready$"
)
# Of lines that differ in their numbers alone so many are kept: more of them would leave no room
# for what comes after.
_OF_ONE_SHAPE = 20
_NUMBERS = re.compile(rb"\d+")
# A log that is written over years of restarts; only the last of these counts.
_MOST_BEGINNINGS = 2000
_LEFT_OUT = re.compile(r"^\[diagnosis: (\d+) lines left out\]$")


class Content(Protocol):
    """An open file, compressed or not."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line, or as much of it."""
        ...


@dataclass(frozen=True, slots=True)
class Room:
    """How many bytes of a log are kept of each part."""

    head: int
    middle: int
    tail: int

    @property
    def whole(self) -> int:
        """Bytes up to which a log is kept as it is."""
        return self.head + self.middle + self.tail


def left_out(line: str) -> int:
    """Return how many lines this one stands for, 0 where it is a line of the log itself."""
    found = _LEFT_OUT.match(line)
    return int(found[1]) if found else 0


def standing_for(lines: int) -> str:
    """Return the line that stands for so many others."""
    return f"[diagnosis: {lines} lines left out]\n"


def numbered(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Return each line with its number in the log as it was, without what stands for others."""
    number = 0
    for line in lines:
        if skipped := left_out(line):
            number += skipped
        else:
            number += 1
            yield number, line


def count(text: str) -> int:
    """Return how many lines the log had."""
    return sum(left_out(line) or 1 for line in text.splitlines())


def kept(content: Content, room: Room) -> str:
    """Return the log, or what is kept of it."""
    parts: list[bytes] = []
    shapes: Counter[bytes] = Counter()
    head = middle = tail = skipped = 0
    last: deque[bytes] = deque()
    for line in _lines(content):
        if head + len(line) <= room.head and not last:
            head += len(line)
            parts.append(line)
            continue
        last.append(line)
        tail += len(line)
        while tail > room.tail + max(0, room.middle - middle) and len(last) > 1:
            gone = last.popleft()
            tail -= len(gone)
            if not _is_kept(gone, shapes, room.middle - middle):
                skipped += 1
                continue
            if skipped:
                parts.append(standing_for(skipped).encode())
                skipped = 0
            # A beginning is kept even where there is no room, and takes none.
            middle += 0 if _BEGINS.search(gone) else len(gone)
            parts.append(gone)
    if skipped:
        parts.append(standing_for(skipped).encode())
    return b"".join((*parts, *last)).decode(errors="replace")


def _lines(content: Content) -> Iterator[bytes]:
    """Return the lines; the rest of a very long one is dropped."""
    while line := content.readline(_LONGEST_LINE):
        if not line.endswith(b"\n") and len(line) == _LONGEST_LINE:
            # Half of a word may be half of a secret, which nobody would know again.
            cut = line.rfind(b" ", _LONGEST_LINE - _LONGEST_WORD)
            line = (line if cut < 0 else line[:cut]) + b"\n"
            while (rest := content.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
        yield line


def _is_kept(line: bytes, shapes: Counter[bytes], room: int) -> bool:
    """Tell whether a line between head and tail is kept, and count it if so."""
    if _BEGINS.search(line):
        shapes[_BEGINS.pattern] += 1
        return shapes[_BEGINS.pattern] <= _MOST_BEGINNINGS
    if len(line) > room or _is_routine(line):
        return False
    shape = _NUMBERS.sub(b"0", line)
    if shapes[shape] >= _OF_ONE_SHAPE:
        return False
    shapes[shape] += 1
    return True


def _is_routine(line: bytes) -> bool:
    found = _ROUTINE.search(line)
    return found is not None and not _ALARM.search(line, 0, found.end())
