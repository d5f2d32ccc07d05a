"""Go from the machines that a cluster has to those that it should have, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .fleet import (
    GONE,
    READY,
    Complete,
    End,
    Launch,
    Machine,
    NoCapacity,
    NotEnded,
    Offer,
    Pending,
    ReplyLost,
    Seen,
    Spare,
    Step,
    TakeOver,
    TooDear,
    Wait,
    Wish,
    cents_per_hour,
    is_known,
    next_step,
)


class Fleet(Protocol):
    """What a provider offers a cluster."""

    @property
    def pending(self) -> Pending | None:
        """The launch that is not listed yet."""

    def machines(self) -> list[Machine]:
        """Return the cluster's machines."""

    def offers(self) -> list[Offer]:
        """Return what can be had, in order of preference."""

    def launch(self, slots: Sequence[int], offer: Offer) -> str:
        """Launch a machine for each slot, all or none; raise NoCapacity or ReplyLost."""

    def end(self, machines: Sequence[Machine]) -> None:
        """End machines; raise NotEnded where the provider refuses. One that is gone is ended."""

    def forget(self) -> None:
        """Let go of the pending launch."""

    def move(self, machine: Machine, slot: int) -> None:
        """Give a machine another slot."""


@dataclass
class Outcome:
    """What was done, and where it ended."""

    machines: list[Machine] = field(default_factory=list)
    surplus: list[Machine] = field(default_factory=list)
    launched: list[int] = field(default_factory=list)
    ended: list[tuple[Machine, str]] = field(default_factory=list)
    # What was made or changed beside machines.
    surroundings: list[str] = field(default_factory=list)
    # Slots that a spare has taken, each with the slot that it had.
    taken: list[tuple[int, int]] = field(default_factory=list)
    # Machines that the provider ended by itself, before this began or meanwhile.
    gone: list[Machine] = field(default_factory=list)
    # Machines that are not up and may serve, for which it stopped.
    spared: list[Machine] = field(default_factory=list)
    # Why it stopped before every slot had its machine; empty when all have.
    stopped: str = ""
    cents_per_hour: int = 0

    def add(self, later: Outcome) -> None:
        """Take over where a later try ended; what was done before was done."""
        self.launched += later.launched
        self.ended += later.ended
        self.taken += later.taken
        self.gone = self.gone or later.gone
        self.machines, self.surplus = later.machines, later.surplus
        self.spared = later.spared
        self.stopped, self.cents_per_hour = later.stopped, later.cents_per_hour

    @property
    def changed(self) -> bool:
        """Tell whether anything was launched, ended, moved or made."""
        return bool(self.launched or self.ended or self.taken or self.surroundings)


def converge(
    fleet: Fleet,
    wish: Wish,
    rejected: Mapping[str, str],
    limit_seconds: float,
    report: Callable[[str], None],
    replacements: int = 3,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    look_seconds: float = 5.0,
    spent: Callable[[], str] = lambda: "",
    unjudged: Callable[[Machine], bool] = lambda _: False,
    equip: Callable[[Sequence[Machine]], None] = lambda _: None,
) -> Outcome:
    """Launch, wait and replace until every slot has a machine that is up, or a limit is met.

    The limits are a time without any progress, what an hour may cost, and how many machines of one
    slot may turn out bad: a region that hands out nothing but broken machines is not asked forever.
    `spent` says why no more may be spent, in time or in money; nothing while more may be.
    `unjudged` tells a machine that serves nobody yet, as one that this run launches does not: no
    other is ended for how it is listed. `equip` gives listed machines what they lack to be up.
    """
    done = Outcome()
    lost: dict[int, int] = {}
    seen, moved = "", now()
    empty: set[tuple[str, str]] = set()
    # Launches that this run has sent, or a run that was killed before any list showed them.
    launches: set[str] = set()
    down: dict[str, float] = {}
    while True:
        machines = fleet.machines()
        known = {one.id for one in done.gone}
        done.gone += [
            one for one in machines if one.status in GONE and one.lost and one.id not in known
        ]
        if not spent():
            equip(machines)
        pending = fleet.pending
        if pending:
            launches.add(pending.launch)
        ours = frozenset(one.id for one in machines if one.launch in launches or unjudged(one))
        down = {one.id: down.get(one.id, now()) for one in machines if one.status != READY}
        if pending and is_known(pending, machines):
            fleet.forget()
            pending = None
        offers = [_without(empty, one) for one in fleet.offers()]
        step = next_step(wish, machines, offers, pending, rejected, now(), Seen(ours, down))
        done.cents_per_hour = cents_per_hour(machines)
        done.stopped = spent()
        if isinstance(step, Complete) and not done.stopped:
            done.machines, done.surplus = list(step.machines), list(step.surplus)
            return done
        # Steps may alternate for ever: asking for a machine and being refused is no progress.
        state = repr(sorted((one.id, one.slot, one.status) for one in machines))
        if state != seen:
            seen, moved = state, now()
        idle = ""
        if now() - moved > limit_seconds:
            idle = f"nothing has moved for {limit_seconds / 60:.0f} minutes"
        done.stopped = done.stopped or _stop(step, done, lost, replacements, idle)
        if done.stopped:
            done.machines = machines
            if isinstance(step, Spare) and done.stopped == step.why:
                done.spared = list(step.machines)
            return done
        try:
            empty = _take(fleet, wish, step, done, lost, report, empty)
        except NotEnded as refusal:
            done.stopped, done.machines = str(refusal), machines
            return done
        if isinstance(step, Wait):
            report(step.why)
            sleep(look_seconds)
            # What was empty is worth another question after a while.
            empty = set()


def too_dear(step: TooDear) -> str:
    """Return what is asked for, and what it would cost."""
    return (
        f"{step.machines} machines would cost ${step.cents_per_hour / 100:.2f} an hour, "
        f"${step.limit / 100:.2f} are allowed"
    )


def _take(
    fleet: Fleet,
    wish: Wish,
    step: Step,
    done: Outcome,
    lost: dict[int, int],
    report: Callable[[str], None],
    empty: set[tuple[str, str]],
) -> set[tuple[str, str]]:
    """Do one step; return the offers that turned out to be empty."""
    if isinstance(step, End):
        ending = wish.purpose or f"the machine of {wish.named([step.machine.slot])}"
        report(f"ending {ending}: {step.why}")
        fleet.end([step.machine])
        # Asked for again where the provider forgot it: one machine all the same.
        if step.machine.id not in {one.id for one, _ in done.ended}:
            done.ended.append((step.machine, step.why))
            lost[step.machine.slot] = lost.get(step.machine.slot, 0) + 1
    if isinstance(step, TakeOver):
        report(f"the spare of slot {step.machine.slot} takes slot {step.slot}")
        fleet.move(step.machine, step.slot)
        done.taken.append((step.slot, step.machine.slot))
    if isinstance(step, Launch):
        slots = wish.named(step.slots)
        report(f"launching {slots}: {step.offer.type} in {step.offer.region}")
        try:
            fleet.launch(step.slots, step.offer)
            done.launched += step.slots
        except NoCapacity:
            return empty | {(step.offer.type, step.offer.region)}
        except ReplyLost:
            report(f"the answer to the launch of {slots} was lost")
    return empty


def _stop(step: Step, done: Outcome, lost: Mapping[int, int], replacements: int, idle: str) -> str:
    """Return why it is not to go on; `idle` says that nothing has moved, once it is too long."""
    if isinstance(step, TooDear):
        return too_dear(step)
    if isinstance(step, Spare):
        return step.why
    if isinstance(step, Launch):
        for slot in step.slots:
            if lost.get(slot, 0) > replacements:
                return f"{lost[slot]} machines of slot {slot} were bad"
            # Some end by themselves before they are judged, each with its first minutes paid.
            if done.launched.count(slot) > replacements:
                return f"{replacements + 1} machines of slot {slot} were launched, and none stayed"
    if isinstance(step, Wait) and idle:
        return f"{idle}: {step.why}"
    return ""


def _without(empty: set[tuple[str, str]], offer: Offer) -> Offer:
    if (offer.type, offer.region) not in empty:
        return offer
    return Offer(offer.type, offer.region, offer.cents_per_hour, available=False)
