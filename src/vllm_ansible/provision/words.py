"""What a person is told of rented machines: what there is, what it costs, and both ways out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from .accepted import refuses_login
from .convergence import Outcome, too_dear
from .ending import Ended
from .fleet import ENDED, GONE, READY, Launch, Machine, Offer, Step, TooDear, Wait, Wish
from .ledger import HOUR
from .own_end import LATE_SECONDS
from .price import dollars
from .provider import Provider


def listed(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """Return machines as a task's result has them."""
    return [
        {
            "id": one.id,
            "slot": one.slot,
            "status": one.status,
            "type": one.type,
            "region": one.region,
            "address": one.address,
            "private_address": one.private_address,
            "cents_per_hour": one.cents_per_hour,
        }
        for one in sorted(machines, key=lambda machine: machine.slot)
    ]


def kinds(machines: Sequence[Machine]) -> str:
    """Return how many of what is where, such as `16 x gpu_1x_gh200 in us-east-3`."""
    counts: dict[tuple[str, str], int] = {}
    for one in machines:
        counts[one.type, one.region] = counts.get((one.type, one.region), 0) + 1
    return ", ".join(f"{count} x {name} in {where}" for (name, where), count in counts.items())


def kind(offer: Offer) -> str:
    """Return a type and where it is."""
    return f"{offer.type} in {offer.region}"


def told(
    cloud: Provider,
    outcome: Outcome,
    wish: Wish,
    seconds_left: float | None,
    now: float,
    watched: str = "",
    idle: Mapping[str, int] | None = None,
    ends_itself: bool = False,
) -> dict[str, Any]:
    """Return the result of a task that has rented what was missing, or could not.

    `seconds_left` is how long the limits let the machines stay from `now` on, `watched` who sees to
    that later, `idle` how many accelerators no engine uses, of how many. `ends_itself` says that
    each machine has a timer for its end.
    """
    result: dict[str, Any] = {
        "changed": outcome.changed,
        "machines": listed(outcome.machines),
        "launched": outcome.launched,
        "ended": [{"slot": one.slot, "id": one.id, "why": why} for one, why in outcome.ended],
        "cents_per_hour": outcome.cents_per_hour,
    }
    if outcome.stopped:
        return {**result, **_stopped(cloud, outcome.stopped, outcome.machines, wish)}
    parts = [f"{kinds(outcome.machines)}, {dollars(outcome.cents_per_hour)}"]
    serving = sum(one.cents_per_hour for one in outcome.machines if one.slot < wish.count)
    parts += idle_price(serving, outcome.cents_per_hour, idle)
    parts += outcome.surroundings
    parts += [f"slot {one.slot} replaced: {why}" for one, why in outcome.ended]
    refilled = {*outcome.launched, *(slot for slot, _ in outcome.taken)}
    parts += [
        f"the machine that slot {one.slot} had was {one.lost}"
        for one in outcome.gone
        if one.slot in refilled
    ]
    parts += [f"slot {slot} taken by the spare of slot {old}" for slot, old in outcome.taken]
    if lacking := wish.count + wish.spares - len(outcome.machines):
        parts.append(f"no capacity for {lacking} of {wish.spares} spares")
    if outcome.surplus:
        parts.append(_surplus(outcome))
    if watched:
        parts.append(f"the limits are watched from this machine: {watched[0].lower()}{watched[1:]}")
    if ends_at := min((one.ends_at for one in outcome.machines if one.ends_at), default=0.0):
        at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends_at))
        parts.append(f"{cloud.title} ends them from {at} on")
        by_provider = max(ends_at - now, 0.0)
        seconds_left = by_provider if seconds_left is None else min(seconds_left, by_provider)
    if seconds_left is not None:
        parts.append(f"ended in {seconds_left / HOUR:.1f} h at the latest")
        if ends_itself:
            late = f"{LATE_SECONDS / 60:.0f} minutes after the limits"
            parts.append(f"if no controller ends them, they end themselves {late}")
    values = {"machines": result["machines"], "cents_per_hour": outcome.cents_per_hour}
    return {**result, "evidence": _evidence("; ".join(parts), values)}


def _surplus(outcome: Outcome) -> str:
    """Return which machines nobody needs, those of a slot that has one already among them."""
    kept = {one.slot for one in outcome.machines}
    words = []
    for one in outcome.surplus:
        double = f" ({one.id}, beside the machine of that slot)" if one.slot in kept else ""
        words.append(f"{one.slot}{double}")
    return f"of no slot any more, and paid for: {', '.join(words)}"


def all_unfit(cloud: Provider, machines: Sequence[Machine], rejected: Mapping[str, str]) -> str:
    """Return why no machine is ended although all are unfit; nothing where some are fit.

    What all machines have in common, or a login that is refused, is more likely on this side.
    """
    reasons = [rejected[one.id] for one in machines if one.id in rejected]
    if not reasons or len(reasons) < len(machines):
        return ""
    if len(reasons) == 1 and not refuses_login(reasons[0]):
        return ""
    return (
        f"none of {len(reasons)} machines is fit, so the cause is looked for here, and none was "
        f"ended: {'; '.join(sorted(set(reasons))[:3])}; see {_login(cloud)}"
    )


def not_ours_to_end(cloud: Provider, machines: Sequence[Machine], found: str = "") -> str:
    """Return why it stops at machines that were found fit, or were not launched from here.

    `found` is what is wrong with each, its status where nothing is said.
    """
    names = ", ".join(
        f"slot {one.slot} ({one.id}, {one.address or 'no address'}) {found or f'is {one.status}'}"
        for one in machines
    )
    return (
        f"{names}; it was found fit before, or was not launched from this state/, and it may "
        f"serve: it is not ended for that; see it in {cloud.title}'s console, and {_reach(cloud)}; "
        "playbooks/replace.yml gives it back by name"
    )


def _login(cloud: Provider) -> str:
    """Return what to look at where no machine lets this side in."""
    return cloud.login or (
        f"that ssh has the key that {cloud.name}_ssh_key_name names, and that "
        f"{cloud.name}_ssh_from holds this machine's address"
    )


def _reach(cloud: Provider) -> str:
    """Return what to look at where a machine does not answer."""
    return cloud.reach or f"that this machine may reach it ({cloud.name}_ssh_from)"


def nobody_watches(error: OSError) -> dict[str, Any]:
    """Return the result of a task that rents nothing, since nobody would end it in time."""
    return {
        "msg": "nothing more is rented: no process watches max_hours and max_cost",
        "expected": "a process on this machine that ends the machines on time",
        "found": str(error),
        "where": "the controller",
        "fix": "correct what the log says and run the same command again; machines that are "
        "rented already cost on: playbooks/teardown.yml ends them",
    }


def unwritten(error: OSError) -> dict[str, Any]:
    """Return the result of a task that could not keep what it needs before it rents."""
    return {
        "msg": f"nothing more is rented: {error.strerror or error}",
        "expected": "room for a few kB, which say what was launched and until when",
        "found": str(error),
        "where": str(error.filename or "state/ on the controller"),
        "fix": "make room there and run the same command again; machines that are rented are "
        "watched on",
    }


def announced(
    cloud: Provider,
    machines: Sequence[Machine],
    step: Step,
    wish: Wish,
    rejected: Mapping[str, str],
    idle: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return what a run would rent or replace, and at what price; only lists were asked for.

    `step` is what a run would do first, `idle` how many accelerators no engine uses, of how many.
    """
    living = [one for one in machines if one.status not in GONE]
    slots = wish.count + wish.spares
    missing = slots - len({one.slot for one in living if one.slot < slots})
    unfit = [one for one in living if one.id in rejected]
    result: dict[str, Any] = {"changed": bool(missing or unfit), "machines": listed(living)}
    if isinstance(step, TooDear):
        return {**result, **_stopped(cloud, too_dear(step), living, wish)}
    if unfit:
        summary = "; ".join(
            f"slot {one.slot} would be replaced: {rejected[one.id]}" for one in unfit
        )
    elif not missing:
        summary = f"{kinds(living)}: every slot has a machine"
    elif isinstance(step, Launch):
        price = dollars(missing * step.offer.cents_per_hour)
        summary = f"{missing} of {slots} would be rented: {kind(step.offer)}, {price}"
    else:
        summary = f"{missing} of {slots} would be rented"
        if isinstance(step, Wait):
            summary += f"; now it would wait for {step.why}"
    each = _hourly(living, slots, step)
    summary = "; ".join([summary, *idle_price(each * wish.count, each * slots, idle)])
    return {**result, "evidence": _evidence(summary, {})}


def _hourly(living: Sequence[Machine], slots: int, step: Step) -> int:
    """Return what one machine of a cluster costs, 0 while nobody knows: all are of one type."""
    if isinstance(step, Launch):
        return step.offer.cents_per_hour
    return living[0].cents_per_hour if len(living) >= slots else 0


def idle_price(serving: int, cents: int, idle: Mapping[str, int] | None) -> list[str]:
    """Return what accelerators cost that no engine uses, nothing where all are used.

    `serving` is what the machines cost that serve, `cents` what all cost, spares with them.
    """
    free, count = (idle or {}).get("idle", 0), (idle or {}).get("of", 0)
    if not free or not cents:
        return []
    wasted = dollars(round(serving * free / count))
    return [f"{wasted} of {dollars(cents)} idle: {free} of {count} accelerators have no engine"]


def _stopped(cloud: Provider, why: str, machines: Sequence[Machine], wish: Wish) -> dict[str, Any]:
    up = sum(one.status == READY for one in machines)
    slots = wish.count + wish.spares
    return {
        "failed": True,
        "msg": f"{up} of {slots} machines are up: {why}",
        "expected": f"{slots} machines that are up",
        "found": f"{up}",
        "fix": "run the same command again, with other "
        f"{cloud.name}_instance_types, {cloud.places} or limits (max_usd_per_hour, max_cost, "
        "max_hours) if need be",
    }


def _evidence(summary: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"gate": "provision", "summary": summary, "values": values}


def would_end(machines: Sequence[Machine]) -> dict[str, Any]:
    """Return what a run would end."""
    living = [one for one in machines if one.status not in GONE]
    told_of = f"{kinds(living)} would be ended" if living else "No machine is left to end"
    return {"changed": bool(living), "machines": listed(living), "msg": told_of}


def ended(
    cloud: Provider, done: Ended, cents: float, left: Sequence[Machine], kept: str
) -> dict[str, Any]:
    """Return the result of a task that has ended a cluster's machines; kept: what stays of it."""
    still = [one for one in left if one.status != ENDED]
    result = {
        "changed": bool(done.ended),
        "machines": listed(still),
        "ended": [{"slot": one.slot, "id": one.id} for one in done.ended],
        "cents": round(cents),
    }
    if still:
        living = sum(one.status not in GONE for one in still)
        paid = f"; {living} of them are paid for" if living else ""
        found = ", ".join(f"{one.id} ({one.status})" for one in still)
        return {
            **result,
            "failed": True,
            "msg": f"{cloud.title} still lists {len(still)} machines of this cluster{paid}",
            "expected": "a list of instances without any of this cluster",
            "found": f"{found}; {done.refused}" if done.refused else found,
            "fix": f"run the same command again, or end them in {cloud.title}'s console",
        }
    count = f"{len(done.ended)} machines ended" if done.ended else "nothing was left to end"
    cost = f"; the cluster has cost about ${cents / 100:.2f}" if cents else ""
    summary = f"{count}, none is listed any more{cost}{f'; {kept}' if kept else ''}"
    return {**result, "evidence": {"gate": "machines ended", "summary": summary, "values": result}}


def others_left(done: Mapping[str, Any], refusal: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a task that has ended what was ours, and nothing of others."""
    result = {name: value for name, value in done.items() if name != "evidence"}
    count = len(done["ended"])
    before = f"{count} machines ended; " if count else ""
    still = f"; {done['msg']}" if done.get("failed") else ""
    return {**result, **refusal, "failed": True, "msg": f"{before}{refusal['msg']}{still}"}
