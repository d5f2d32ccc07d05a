"""End all machines of a cluster, and look until the provider lists none of them any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .convergence import Fleet
from .fleet import GONE, SETTLED_SECONDS, Machine, is_known

LOOK_SECONDS = 5.0


@dataclass
class Ended:
    """What was ended, and what the provider still lists as living when patience was over."""

    ended: list[Machine] = field(default_factory=list)
    left: list[Machine] = field(default_factory=list)


def end_all(
    fleet: Fleet,
    patience_seconds: float,
    report: Callable[[str], None],
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """End every machine of the cluster, one of a launch whose answer was lost included."""
    done = Ended()
    until = now() + patience_seconds
    while True:
        machines = fleet.machines()
        pending = fleet.pending
        unsettled = bool(
            pending and not is_known(pending, machines) and now() - pending.at < SETTLED_SECONDS
        )
        living = [one for one in machines if one.status not in GONE]
        if living:
            report(f"ending {len(living)} machines")
            fleet.end(living)
            known = {one.id for one in done.ended}
            done.ended += [one for one in living if one.id not in known]
        elif not unsettled:
            fleet.forget()
            return done
        if now() >= until:
            done.left = living
            return done
        report("waiting until the provider lists none of them")
        sleep(LOOK_SECONDS)
