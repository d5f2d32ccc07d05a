"""When a rented machine ends itself: a while after the limits, for a controller that is gone.

While the controller lives, its watcher ends the machines first, at the limit.
"""

from __future__ import annotations

from vllm_ansible.node.system import machine_end

from .ledger import HOUR, Ledger
from .limits import seconds_left
from .provider import Settings

LATE_SECONDS = 300.0
# Of `privileges`: nobody could change later what ends a machine, so it gets nothing that does.
NO_ROOT = "none"


def at(ledger: Ledger, settings: Settings, now: float) -> int | None:
    """Return when the machines that are rented now end themselves; None without a limit."""
    left = seconds_left(ledger, settings, now)
    return None if left is None else round(now + left + LATE_SECONDS)


def at_launch(settings: Settings, launched: float, cents_per_hour: int) -> int | None:
    """Return when machines of a launch end themselves, if nobody says otherwise until then.

    `cents_per_hour` is what they cost together: what others cost shortens it later.
    """
    left = [settings.max_seconds] if settings.max_seconds is not None else []
    if settings.max_cents is not None and cents_per_hour:
        left.append(settings.max_cents / cents_per_hour * HOUR)
    return round(launched + min(left) + LATE_SECONDS) if left else None


def user_data(settings: Settings, launched: float, cents_per_hour: int) -> str:
    """Return what a machine runs when it is first started; nothing without a limit."""
    end = at_launch(settings, launched, cents_per_hour)
    return "" if end is None else machine_end.user_data(settings.cluster, end)
