"""A list of instances that shows launches and ends only some time after they were accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class LateList:
    """What the list shows of instances that have just changed."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._before: dict[str, tuple[float, dict[str, Any] | None]] = {}

    def changes(self, identity: str, before: dict[str, Any] | None) -> None:
        """Remember an instance as it was until now; None for one that was not there."""
        self._before[identity] = (self._now(), before)

    def show(self, instances: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
        """Return instances as a list shows them that is so late."""
        late = {
            identity: before
            for identity, (at, before) in self._before.items()
            if self._now() - at < seconds
        }
        current = {one["id"]: one for one in instances}
        return [one for one in (current | late).values() if one is not None]
