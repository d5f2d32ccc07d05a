"""Say in words what is wrong with loss, clocks and round trips between hosts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from vllm_ansible.verify.reach import clocks, loss
from vllm_ansible.verify.reach.measured import Measured, Pair, listed
from vllm_ansible.verify.row import FAIL, WARN, Row

# Far from the others, and far enough from zero for a collective to feel it.
SLOW_TIMES = 10
SLOW_US = 1000.0


def loss_findings(counted: Mapping[Pair, loss.Count]) -> list[Row]:
    """Return a finding for each host or pair that loses datagrams."""
    findings = []
    for cause in loss.attribute(counted):
        shares = [counted[pair] for pair in cause.directions]
        worst = max(shares, key=lambda count: count.fraction)
        ways = "; ".join(
            f"{one} -> {other} {100 * counted[one, other].fraction:.2g} % "
            f"({counted[one, other].lost} of {counted[one, other].sent})"
            for one, other in cause.directions
        )
        one_host = len(cause.hosts) == 1
        where = " <-> ".join(cause.hosts)
        who = "the links of {} lose" if one_host else "the path between {} loses"
        findings.append(
            Row(
                verdict=FAIL,
                check="reach_loss",
                what=f"{who.format(listed(cause.hosts))} up to {100 * worst.fraction:.2g} % of "
                "small datagrams",
                expected=f"less than {100 * loss.LEAST_FRACTION:g} %",
                found=ways,
                where=where,
                fix=_loss_fix(cause.hosts),
            )
        )
    return findings


def _loss_fix(hosts: tuple[str, ...]) -> str:
    look = f"on {listed(hosts)}: `ip -s -s link` and `ethtool -S <interface>` show errors and drops"
    if len(hosts) == 1:
        return f"{look}; change cable or transceiver, or the switch's port; check that the MTU fits"
    return f"{look}; both reach others without loss, so look at the switches between them"


def clock_findings(time: clocks.Clocks) -> list[Row]:
    """Return a finding where clocks are too far apart."""
    if not time.wrong:
        return []
    names = time.wrong if time.majority else tuple(time.offsets)
    ahead = listed(f"{name} {_offset(time.offsets[name])}" for name in names)
    what = (
        f"the clock of {listed(names)} is not that of the other hosts"
        if time.majority
        else f"the clocks of {listed(names)} differ, and there is no majority"
    )
    return [
        Row(
            verdict=FAIL,
            check="reach_clocks",
            what=what,
            expected=f"clocks within {clocks.FAIL_SECONDS:g} s of each other",
            found=ahead,
            where=", ".join(names),
            fix=f"on {listed(names)}: `timedatectl set-ntp true`, or with chrony "
            "`chronyc makestep`; `timedatectl timesync-status` or `chronyc tracking` shows whether "
            "a time server answers",
        )
    ]


def clock_warnings(time: clocks.Clocks) -> list[Row]:
    """Return warnings of clocks that drift, and of those that nobody could read."""
    found = [
        Row(
            verdict=WARN,
            check="reach_clocks",
            what=f"the clock of {name} is off by {_offset(time.offsets[name])}",
            expected=f"at most {clocks.WARN_SECONDS:g} s; {clocks.FAIL_SECONDS:g} s is a failure",
            found=_offset(time.offsets[name]),
            where=name,
            fix=f"on {name}: `timedatectl set-ntp true` or `chronyc makestep`",
        )
        for name in time.doubtful
    ]
    return found + [
        Row(
            verdict=WARN,
            check="reach_clocks",
            what=f"the clock of {name} was not measured",
            expected="a peer that speaks to it",
            found="none",
            where=name,
            fix="remove what blocks its ports",
        )
        for name in time.unknown
    ]


def _offset(offset: clocks.Offset) -> str:
    return f"{offset.seconds:+.3f} s (+- {offset.uncertainty:.3g} s)"


def slow_pairs(measured: Measured) -> list[Row]:
    """Return a warning for each pair whose round trip is out of all proportion.

    Judged by the fastest one of each pair: a slow path slows them all, a busy host only some.
    """
    trips: dict[frozenset[str], float] = {}
    for pair, one in measured.spoken().items():
        ends = frozenset(pair)
        trips[ends] = min(trips.get(ends, math.inf), float(one["round_trip_best_us"]))
    usual = statistics.median(trips.values()) if trips else 0.0
    return [
        Row(
            verdict=WARN,
            check="reach_round_trip",
            what=f"the round trip between {listed(sorted(ends))} is {trip / usual:.0f} times the "
            "usual one",
            expected=f"about {usual:.0f} us, as between the other hosts",
            found=f"{trip:.0f} us at best",
            where=" <-> ".join(sorted(ends)),
            fix="see whether they are at one place: `tracepath -n <address>` on one of them",
        )
        for ends, trip in trips.items()
        if trip > SLOW_TIMES * usual and trip > SLOW_US
    ]


def unmeasured_losses(silent: list[Pair]) -> list[Row]:
    """Return a warning for each pair between which no datagram comes through."""
    pairs = dict.fromkeys(" <-> ".join(sorted(pair)) for pair in silent)
    return [
        Row(
            verdict=WARN,
            check="reach_loss",
            what=f"loss between {where} was not measured",
            expected="datagrams that are echoed",
            found="TCP works, but no UDP comes through",
            where=where,
            fix="let the firewall pass UDP between the hosts to have it measured",
        )
        for where in pairs
    ]
