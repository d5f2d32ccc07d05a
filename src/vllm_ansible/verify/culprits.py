"""Say what a search has found: a slow host, card, pair or side, with figures and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from vllm_ansible.verify.row import FAIL, PASS, Row

CHECK = "links"
PORT = "see `ethtool {interface}` and `ibstat` there, repair it and run again"
REPLACE = "leave {host} out of the group gpu, or accept it by name: verify_accept: [links@{where}]"


def between_hosts(
    culprit: Mapping[str, Any], pairs: Sequence[Mapping[str, Any]], interface: str
) -> Row:
    """Return the row on the links between hosts; rates of pairs in GB/s, one direction."""
    kind, members = str(culprit["kind"]), [str(one) for one in culprit["members"]]
    least, usual = _range(culprit, pairs)
    expected = f"{rate(usual)} in each direction between any two"
    if kind == "none":
        return Row(CHECK, "all hosts", PASS, "the links between hosts", expected, rate(least))
    where = ", ".join(members)
    fail = partial(Row, CHECK, where, FAIL, expected=expected)
    replace = REPLACE.format(host=where, where=where)
    if kind == "node":
        cards = culprit.get("cards") or []
        named = f"card {', '.join(map(str, cards))} of {where}" if cards else where
        found = f"{rate(least)} with {'every' if len(members) > 1 else 'every other'} host it met"
        fix = f"{PORT.format(interface=interface)}; {replace}"
        cause = f"the cable, the switch port or the card of {named}"
        return fail(what=f"the link of {named}", found=found, fix=fix, cause=cause)
    if kind == "pair" and culprit["conclusive"]:
        others = "both are fast with others" if len(pairs) > 1 else "the only pair there is"
        return fail(
            what=f"the path between {' and '.join(members)}",
            found=f"{rate(least)}; {others}",
            fix="compare `ip route get` of both, and move one to another port; " + replace,
            cause="what only these two share: a switch, a rail or a route",
        )
    if kind == "side":
        sides = [", ".join(side) for side in culprit["sides"]]
        return fail(
            what=f"what joins {sides[0]} with {sides[1]}",
            found=f"{rate(least)} across, {rate(usual)} within each side",
            fix="repair the uplink, or keep an engine on one side of it (`hosts` of the engine)",
            cause="the uplink between their switches",
        )
    slow = ", ".join(f"{first} - {second}" for first, second in culprit["slow"])
    return fail(
        what="several links",
        found=f"slow: {slow}; the slowest has {rate(least)}",
        fix="repair the slowest first and run again",
        cause="a common switch or rail is likely",
    )


def inside_host(host: str, found: Mapping[str, Any]) -> Row:
    """Return the row on the links between the cards of one host."""
    culprit = found["culprit"]
    least, usual = _range(culprit, found["pairs"])
    expected = f"{rate(usual)} in each direction between any two cards"
    what = f"the links between the cards of {host}"
    if culprit["kind"] == "none":
        return Row("cards", host, PASS, what, expected, rate(least))
    slow = ", ".join(f"{first} - {second}" for first, second in culprit["slow"])
    cards = f"card {', '.join(culprit['members'])}" if culprit["kind"] == "node" else "cards"
    return Row(
        "cards",
        host,
        FAIL,
        what,
        expected,
        f"{cards}: {rate(least)}; slow pairs {slow}",
        "see `nvidia-smi nvlink -s` and `nvidia-smi topo -m`, or `efsmi -q`; a failed link needs "
        "a reset or another host",
    )


def rate(gbs: float) -> str:
    """Return a rate as people say it: GB/s, and MB/s below one."""
    return f"{gbs:.1f} GB/s" if gbs >= 1 else f"{gbs * 1000:.1f} MB/s"


def _range(culprit: Mapping[str, Any], pairs: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the least rate among those that count, and what healthy ones have; sums of rails."""
    rails = max((len(one["rails"]) for one in pairs), default=1)
    slow = [tuple(pair) for pair in culprit["slow"]]
    rates = [
        float(one["gbs"]) for one in pairs if not slow or (one["first"], one["second"]) in slow
    ]
    return min(rates, default=0.0), float(culprit["reference"]) * rails
