"""What is done next so that a cluster has its rented machines: pure decisions, one at a time.

A slot is a place in the cluster, counted from 0; the machine in it may be replaced, the slot stays.
Everything that decides is in what the provider lists (status, tags) and in one note on the
controller: the launch whose answer has not come. So a run that was killed at any point is repeated
without a machine that nobody remembers, and without a second one for a slot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

# A launch that was carried out is listed within a few seconds; this is for a slow day.
SETTLED_SECONDS = 60.0
# One whose launch was answered with an id exists, however long the list takes to show it.
LAUNCHED_SECONDS = 600.0
# After an accepted end a list may still show the machine as it was.
ENDING_SECONDS = 60.0
ENDING, ENDED = "terminating", "terminated"
GONE = frozenset({ENDING, ENDED})
TAKEN = "preempted"
BROKEN = {
    "unhealthy": "the provider calls it unhealthy",
    TAKEN: "the provider ended it",
    "stopped": "the provider lists it as stopped",
}
# A spot machine ends two minutes after its notice; then another one takes its slot.
TAKEN_SECONDS = 180.0
READY, BOOTING = "active", "booting"
SSH = 22
# Slots of machines beside a cluster, which are none of it.
BESIDE = (900, 901)
# The address of a slot without a machine: says in any message of SSH why it cannot be reached.
NOWHERE = "no-machine-yet.invalid"


class NoCapacity(Exception):
    """The provider had no machine of this offer left."""


class NotEnded(Exception):
    """The provider refused to end a machine, in its own words."""


class ReplyLost(Exception):
    """A launch was sent and its answer never came: it may have been carried out."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One rented machine of this cluster, as it is listed."""

    id: str
    slot: int
    status: str
    type: str
    region: str
    cents_per_hour: int
    launch: str
    since: float
    address: str = ""
    private_address: str = ""
    owner: str = ""
    # Of the controller's state/ that launched it; a machine of before that has none.
    state: str = ""
    # When the provider ends it, in seconds since the epoch; 0 where it never does.
    ends_at: float = 0.0
    # Why the provider ended it by itself, such as "taken back by AWS"; empty where it did not.
    lost: str = ""
    # Where SSH answers; a provider may move it.
    port: int = SSH
    # What it is launched and ended together with, by the provider's id; empty where it is alone.
    group: str = ""
    # When its system or container was last started, as the provider words it: then its host keys
    # may be others. Empty where they outlive a start.
    started: str = ""
    # Where the provider publishes further ports, as "9443=198.51.100.1:30443", by spaces.
    published: str = ""

    @property
    def door(self) -> str:
        """Where SSH reaches it, as known_hosts writes it; empty without an address."""
        if not self.address or self.port == SSH:
            return self.address
        return f"[{self.address}]:{self.port}"

    @property
    def shown_by(self) -> str:
        """What its host keys belong to: a machine, or a container from one start to the next."""
        return f"{self.id} {self.started}".rstrip()


@dataclass(frozen=True, slots=True)
class Pending:
    """A launch that was sent, or was about to be, and that no list shows yet.

    `machine` is an id that the provider answered with; empty while no answer has come. `count` is
    how many machines it starts, `slot` the slot of the first.
    """

    slot: int
    launch: str
    at: float
    machine: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Offer:
    """A type in a region, with its price."""

    type: str
    region: str
    cents_per_hour: int
    available: bool


@dataclass(frozen=True, slots=True)
class Wish:
    """What the inventory asks for; prices in US cents an hour, times in seconds.

    `together` says that the provider starts several machines at once, all of them or none.
    `purpose` says what a machine is for that has no slot, such as "a machine that sends the load".
    """

    count: int
    spares: int = 0
    max_cents_per_hour: int | None = None
    boot_seconds: float = 1800.0
    together: bool = False
    purpose: str = ""

    def named(self, slots: Sequence[int]) -> str:
        """Return slots as a person reads them."""
        words = ", ".join(map(str, slots))
        return self.purpose or (f"slot {words}" if len(slots) == 1 else f"slots {words}")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run knows of machines beside what the provider lists.

    `ours` holds the ids of those that may be ended for how they are: this run, or one before it,
    launched them, and nobody found them fit yet, so they serve nobody. `down` holds, by id, since
    when a machine was not up as this run saw it; a tag says when it was launched, which for one
    that is restarted, or that one list shows without its address, may be days ago.
    """

    ours: frozenset[str] = frozenset()
    down: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class End:
    """End this machine, for this reason."""

    machine: Machine
    why: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch a machine for each of these slots, all of them or none."""

    slots: tuple[int, ...]
    offer: Offer


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Let a spare take this slot, whose machine is gone."""

    machine: Machine
    slot: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again in a while; `why` is what is waited for."""

    why: str


@dataclass(frozen=True, slots=True)
class Spare:
    """Stop: these are not up, for this reason, and may serve. They are not ours to end."""

    machines: tuple[Machine, ...]
    why: str


@dataclass(frozen=True, slots=True)
class TooDear:
    """Stop before anything is launched: all machines together would cost more than may be spent."""

    machines: int
    cents_per_hour: int
    limit: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Every slot that serves has a machine that is up; `surplus` holds machines of no slot.

    A spare may be lacking where nobody has one to rent: those that serve are not kept waiting.
    """

    machines: tuple[Machine, ...]
    surplus: tuple[Machine, ...] = ()


Step = End | Launch | TakeOver | Wait | Spare | TooDear | Complete


def next_step(
    wish: Wish,
    machines: Sequence[Machine],
    offers: Sequence[Offer],
    pending: Pending | None,
    rejected: Mapping[str, str],
    now: float,
    seen: Seen | None = None,
) -> Step:
    """Return what to do next.

    `offers` come in the order of preference; `rejected` holds the ids of machines that were not
    accepted, each with its reason; `now` is in seconds since the epoch. Nothing is ended for how
    it is unless `seen` says that it serves nobody.
    """
    seen = seen or Seen()
    living = [one for one in machines if one.status not in GONE]
    broken = _broken(wish, living, rejected, now, seen)
    if broken:
        return broken
    if pending and not is_settled(pending, machines, now):
        return Wait(f"the launch of {wish.named([pending.slot])} to be listed")
    by_slot, doubles = _by_slot(living, seen)
    if idle := [one for one in doubles if one.id in seen.ours]:
        return End(idle[0], f"slot {idle[0].slot} has a machine already")
    slots = range(wish.count + wish.spares)
    missing = [slot for slot in slots if slot not in by_slot]
    if missing and missing[0] < wish.count:
        spare = _ready_spare(by_slot, slots[wish.count :])
        return TakeOver(spare, missing[0]) if spare else _launch(wish, missing, living, offers)
    if missing and not isinstance(step := _launch(wish, missing, living, offers), Wait):
        return step
    booting = [one for one in by_slot.values() if one.status != READY and one.slot in slots]
    if booting:
        up = len(slots) - len(missing) - len(booting)
        return Wait(f"{up} of {len(slots)} machines are up")
    surplus = [one for slot, one in sorted(by_slot.items()) if slot not in slots]
    kept = tuple(by_slot[slot] for slot in slots if slot in by_slot)
    return Complete(kept, (*surplus, *doubles))


def is_known(pending: Pending, machines: Collection[Machine]) -> bool:
    """Tell whether all of a launch is listed: then it was carried out, and is no longer pending."""
    return sum(one.launch == pending.launch for one in machines) >= pending.count


def is_settled(pending: Pending, machines: Collection[Machine], now: float) -> bool:
    """Tell whether a launch is listed, or would be by now."""
    patience = LAUNCHED_SECONDS if pending.machine else SETTLED_SECONDS
    return is_known(pending, machines) or now - pending.at >= patience


def cents_per_hour(machines: Collection[Machine]) -> int:
    """Return what these machines cost together: from the accepted launch until they are ending."""
    return sum(one.cents_per_hour for one in machines if one.status not in GONE)


def first(machine: Machine) -> tuple[bool, float]:
    """Return the sort key of machines of one slot: the first that is up has it."""
    return machine.status != READY, machine.since


def _by_slot(
    living: Sequence[Machine], seen: Seen
) -> tuple[dict[int, Machine], tuple[Machine, ...]]:
    """Return the machine of each slot, and those whose slot has one already."""
    by_slot: dict[int, Machine] = {}
    doubles = []
    for one in sorted(
        living, key=lambda one: (one.status != READY, one.id in seen.ours, one.since)
    ):
        if by_slot.setdefault(one.slot, one) is not one:
            doubles.append(one)
    return by_slot, tuple(doubles)


def _broken(
    wish: Wish,
    living: Sequence[Machine],
    rejected: Mapping[str, str],
    now: float,
    seen: Seen,
) -> End | Spare | None:
    # What no slot needs stops no run: it is said at its end.
    by_slot, slots = _by_slot(living, seen)[0], range(wish.count + wish.spares)
    spared = []
    for one in living:
        if one.id in rejected:
            return End(one, rejected[one.id])
        ours = one.id in seen.ours
        if one.status in BROKEN and ours:
            return End(one, BROKEN[one.status])
        # One list may be wrong of a machine that serves.
        patience = wish.boot_seconds
        if one.status in BROKEN:
            patience = TAKEN_SECONDS if one.status == TAKEN else SETTLED_SECONDS
        down = now - seen.down.get(one.id, now)
        if one.status == READY or down <= min(patience, wish.boot_seconds):
            continue
        if ours:
            return End(one, f"still booting after {wish.boot_seconds / 60:.0f} minutes")
        if one.slot in slots and by_slot[one.slot] is one:
            spared.append(one)
    why = " and ".join(sorted({one.status for one in spared}))
    return Spare(tuple(spared), why) if spared else None


def _ready_spare(by_slot: Mapping[int, Machine], slots: range) -> Machine | None:
    return next(
        (by_slot[one] for one in slots if one in by_slot and by_slot[one].status == READY), None
    )


def _at_once(wish: Wish, missing: Sequence[int]) -> tuple[int, ...]:
    """Return the slots of one launch: spares by another one, which keeps nobody waiting."""
    if not wish.together:
        return (missing[0],)
    return tuple(one for one in missing if one < wish.count) or tuple(missing)


def _launch(
    wish: Wish, missing: Sequence[int], living: Sequence[Machine], offers: Sequence[Offer]
) -> Launch | Wait | TooDear:
    # One region, since private addresses do not reach further; one type, since ranks are equal.
    if living:
        home = living[0]
        offers = [one for one in offers if (one.type, one.region) == (home.type, home.region)]
    available = [one for one in offers if one.available]
    if not available:
        where = ", ".join(f"{one.type} in {one.region}" for one in offers)
        return Wait(f"capacity for {wish.named(missing[:1])}: none of {where}")
    # Of all that is lacking, not of the next one: half a cluster is paid for and serves nothing.
    costs = [cents_per_hour(living) + len(missing) * one.cents_per_hour for one in available]
    limit = wish.max_cents_per_hour
    for offer, cost in zip(available, costs, strict=True):
        if limit is None or cost <= limit:
            return Launch(_at_once(wish, missing), offer)
    return TooDear(len(living) + len(missing), min(costs), limit or 0)
