"""End all machines of a cluster, and look until the provider lists none of them any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .convergence import Fleet
from .fleet import ENDED, GONE, Machine, NotEnded, is_settled

LOOK_SECONDS = 5.0


@dataclass
class Ended:
    """What was ended, and what the provider still lists when patience was over.

    `refused` says in its words what it does not end.
    """

    ended: list[Machine] = field(default_factory=list)
    left: list[Machine] = field(default_factory=list)
    refused: str = ""


def end_all(
    fleet: Fleet,
    patience_seconds: float,
    report: Callable[[str], None],
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    mine: Callable[[Machine], bool] = lambda _: True,
) -> Ended:
    """End every machine of the cluster, one of a launch whose answer was lost included.

    `mine` tells the machines that may be ended; others are none of it.
    """
    done = Ended()
    until = now() + patience_seconds
    while True:
        machines = [one for one in fleet.machines() if mine(one)]
        pending = fleet.pending
        settled = pending is None or is_settled(pending, machines, now())
        living = [one for one in machines if one.status not in GONE]
        if living:
            report(f"ending {len(living)} machines")
            done.refused = _end(fleet, living)
            known = {one.id for one in done.ended}
            done.ended += [one for one in living if one.id not in known]
        left = [one for one in machines if one.status != ENDED]
        if not left and settled:
            fleet.forget()
            return done
        if now() >= until:
            done.left = left
            return done
        report(
            f"waiting until the provider lists none of {len(left)} machines"
            if left
            else "waiting whether a launch that was sent brings a machine"
        )
        sleep(LOOK_SECONDS)


def end_every(
    fleets: Sequence[Fleet],
    patience_seconds: float,
    report: Callable[[str], None],
    mine: Callable[[Machine], bool] = lambda _: True,
) -> Ended:
    """End every machine of several fleets, one fleet after the other.

    An error of one is raised once the others are ended, which cost as well.
    """
    done, failure = Ended(), None
    for fleet in fleets:
        try:
            one = end_all(fleet, patience_seconds, report, mine=mine)
        except Exception as error:
            failure = failure or error
            continue
        done.ended += one.ended
        done.left += one.left
        done.refused = "; ".join(word for word in (done.refused, one.refused) if word)
    if failure:
        raise failure
    return done


def _end(fleet: Fleet, machines: list[Machine]) -> str:
    """End machines; return what the provider says of those that it refuses to end."""
    try:
        fleet.end(machines)
    except NotEnded as refusal:
        return str(refusal)
    return ""
