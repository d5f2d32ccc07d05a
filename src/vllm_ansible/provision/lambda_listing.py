"""The last list of machines that the provider gave, kept for a minute between commands."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import files

FRESH_SECONDS = 60.0
# A listed instance carries secrets of its own: only these fields are kept.
KEPT = (
    *("id", "name", "ip", "private_ip", "status", "hostname", "region", "instance_type", "tags"),
    *("file_system_mounts", "firewall_rulesets"),
)


class Listing:
    """A file that holds instances as they were listed, and when."""

    def __init__(self, file: Path, now: Callable[[], float] = time.time) -> None:
        self._file, self._now = file, now

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
        """Keep what was listed, without tokens, and return it."""
        kept = [{name: one[name] for name in KEPT if name in one} for one in instances]
        files.write(self._file, json.dumps({"at": self._now(), "instances": kept}))
        return kept
