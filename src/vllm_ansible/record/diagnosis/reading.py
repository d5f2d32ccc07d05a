"""Read logs, and the evidence beside them, from directories and files that somebody names."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from .. import events
from .evidence import FACTS, KEPT, Evidence, of_directory
from .long_log import Room, kept

_MIB = 1024 * 1024
# Of a longer log the head, the tail and the lines between them that are no routine are kept.
_ROOM = Room(head=_MIB, middle=2 * _MIB, tail=3 * _MIB)
# Of all logs together; many long ones share it.
_MOST_BYTES = 96 * _MIB
_MOST_FILES = 2000
# What lies in the directory of a run, in a bundle and on the head beside logs, and is none.
_NO_LOGS = frozenset(
    (events.FILE, KEPT, FACTS, "diagnosis.json", "diagnosis.txt", "plan.json", "report.html")
)


class UnreadableLogs(ValueError):
    """There is nothing to read, or too much of it."""


def read_logs(paths: Sequence[Path]) -> dict[str, str]:
    """Return the text of each file, by its path below the directory that was named."""
    files: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(
                one for one in path.rglob("*") if one.is_file() and one.name not in _NO_LOGS
            )
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
    room = _room(len(files))
    return {name: _text(file, room) for name, file in files.items()}


def read_evidence(paths: Sequence[Path]) -> Evidence:
    """Return what lies beside the logs: a run's record, the evidence of verify, facts."""
    found = Evidence()
    for path in paths:
        if path.is_dir():
            found = found.joined(of_directory(path))
    return found


def _room(files: int) -> Room:
    """Return what each of so many logs may take."""
    share = min(1.0, _MOST_BYTES / files / _ROOM.whole)
    return Room(*(int(part * share) for part in (_ROOM.head, _ROOM.middle, _ROOM.tail)))


def _text(file: Path, room: Room) -> str:
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as content:
            return kept(content, room)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise UnreadableLogs(f"expected a readable log, found {error}") from error
