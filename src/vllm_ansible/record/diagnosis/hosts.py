"""Tell which host wrote a log, by the name under which the log was collected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath


def host_of(rank: str, known: Sequence[str] = ()) -> str:
    """Return the host of a log named `host process`, `host/file` or `host-process.log`.

    A known host is recognised wherever the name of a file or directory begins with it; without
    one, the first directory or word is taken for the host, and a lone file for a host of its own.
    """
    parts = re.split(r"[/ ]", rank)
    for name in sorted(known, key=len, reverse=True):
        begins = re.compile(rf"{re.escape(name)}(?![\w])")
        if any(begins.match(part) for part in parts):
            return name
    if len(parts) > 1:
        return parts[0]
    return re.sub(r"\.(?:log|txt|out|err)$", "", PurePosixPath(rank.removesuffix(".gz")).name)
