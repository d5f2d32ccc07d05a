"""Read single conditions and verdicts of nftables rules, as `nft --json` prints them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Any, Optional

Ports = list[tuple[int, int]]


def verdict_of(expressions: list[Any]) -> tuple[str, str]:
    """Return accept, drop, reject, return, jump or goto, with its target; empty for none."""
    for expression in expressions:
        for kind in ("accept", "drop", "reject", "return"):
            if kind in expression:
                return kind, ""
        for kind in ("jump", "goto"):
            if kind in expression:
                return kind, str(expression[kind]["target"])
    return "", ""


def chooses(expressions: list[Any]) -> bool:
    """Tell whether a rule has a map of verdicts that a first packet may meet."""
    keys = [condition(one["vmap"].get("key")) for one in expressions if "vmap" in one]
    # A map of connection states decides about what is established.
    return any(key != ("ct", "state") for key in keys)


def condition(left: Any) -> tuple[str, str]:
    """Return what a condition is about, such as (tcp, dport)."""
    if not isinstance(left, dict):
        return ("", "")
    if "payload" in left:
        return (str(left["payload"].get("protocol", "")), str(left["payload"].get("field", "")))
    for kind in ("meta", "ct"):
        if kind in left:
            return (kind, str(left[kind].get("key", "")))
    return ("", "")


def covers(value: Any, address: str) -> bool:
    """Tell whether an address, prefix, range or element holds an address."""
    if isinstance(value, dict):
        if "elem" in value:
            return covers(value["elem"]["val"], address)
        if "prefix" in value:
            prefix = value["prefix"]
            network = IPv4Network(f"{prefix['addr']}/{prefix['len']}", strict=False)
            return IPv4Address(address) in network
        if "range" in value:
            first, last = (IPv4Address(one) for one in value["range"])
            return first <= IPv4Address(address) <= last
    return bool(value == address)


def port_range(value: Any) -> Optional[tuple[int, int]]:
    """Return the ports of a number or a range; None for a name, which no port of ours has."""
    if isinstance(value, dict) and "range" in value:
        first, last = value["range"]
        return int(first), int(last)
    return (value, value) if isinstance(value, int) else None


def overlaps(port: tuple[int, int], others: Ports) -> Ports:
    """Return the parts of a range that some others cover."""
    pairs = [(max(port[0], low), min(port[1], high)) for low, high in others]
    return [(low, high) for low, high in pairs if low <= high]


def less(ports: Ports, taken: Ports) -> Ports:
    """Return some ranges less others."""
    for low, high in taken:
        left = []
        for first, last in ports:
            left += [(first, min(last, low - 1)), (max(first, high + 1), last)]
        ports = [(first, last) for first, last in left if first <= last]
    return ports


def same(pattern: str, name: str) -> bool:
    """Tell whether an interface's name is the one of a rule, which may end in an asterisk."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
