"""Take apart what several containers wrote (`kubectl logs --prefix`, `docker compose logs`)."""

from __future__ import annotations

import re
from collections import defaultdict

from .long_log import left_out, standing_for

# Who wrote a line, and of a service of compose also that it ended. A column of times or of levels
# is one program's, whose lines belong together.
_WRITTEN_BY = re.compile(
    r"(?:\x1b\[[\d;]*m)*(?:\[pod/(?P<pod>[\w.-]+)/(?P<container>[\w.-]+)\] "
    r"|(?!(?:[\d.-]+[a-z]{0,2}|trace|debug|info|notice|warn(?:ing)?|err(?:or)?|critical|fatal) +\|)"
    r"(?P<service>[a-z\d][\w.-]*) +\|(?: |$)"
    r"|(?P<ended>[a-z\d][\w.-]*) exited with code \d+$)"
)
# So many of the lines of such a log say who wrote them.
_MOST = 0.9
_IN = " in "


def taken_apart(name: str, text: str) -> dict[str, str]:
    """Return the lines of each container by its name and the log's, or the log as it is.

    Where lines of others stood, one line says how many, so that each keeps its number.
    """
    lines = text.splitlines()
    writers = [_writer(line) for line in lines]
    known = {writer for writer in writers if writer}
    said = sum(bool(line.strip()) and not left_out(line) for line in lines)
    if len(known) < 2 or sum(map(bool, writers)) < _MOST * said:
        return {name: text}
    parts = defaultdict[str, list[str]](list)
    reached = defaultdict[str, int](int)
    number, current = 0, next(writer for writer in writers if writer)
    for line, writer in zip(lines, writers, strict=True):
        if skipped := left_out(line):
            number += skipped
            continue
        current = writer or current
        if number > reached[current]:
            parts[current].append(standing_for(number - reached[current]))
        number += 1
        reached[current] = number
        parts[current].append(f"{line}\n")
    return {f"{one}{_IN}{name}": "".join(part) for one, part in parts.items()}


def log_of(name: str) -> str:
    """Return the log that a part was taken from, of another the name itself."""
    return name.rpartition(_IN)[2]


def _writer(line: str) -> str:
    found = _WRITTEN_BY.match(line)
    if not found:
        return ""
    if found["pod"]:
        return f"{found['pod']}/{found['container']}"
    return found["service"] or found["ended"]
