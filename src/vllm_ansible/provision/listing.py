"""The last list of machines that the provider gave, kept for a minute between commands."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import files

FRESH_SECONDS = 60.0


class Listing:
    """A file that holds instances as they were listed, and when.

    A listed instance may carry secrets of its own: only the `names` of it are kept.
    """

    def __init__(
        self, file: Path, names: Sequence[str], now: Callable[[], float] = time.time
    ) -> None:
        self._file, self._names, self._now = file, names, now

    def fresh(self) -> list[dict[str, Any]] | None:
        """Return the instances of the last minute; None if there is no such list."""
        try:
            content = json.loads(self._file.read_text())
            age = self._now() - float(content["at"])
            instances = [dict(one) for one in content["instances"]]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        # A list from the future is one from before the clock was set.
        return instances if 0 <= age < FRESH_SECONDS else None

    def keep(self, instances: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Keep what was listed, without secrets, and return it."""
        kept = [{name: one[name] for name in self._names if name in one} for one in instances]
        with contextlib.suppress(OSError):
            # Kept for speed alone: a full disk keeps nobody from seeing what is rented.
            files.write(self._file, json.dumps({"at": self._now(), "instances": kept}))
        return kept
