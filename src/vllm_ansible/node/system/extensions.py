"""Conditions of iptables' extensions, which nft does not tell and iptables-save does."""

from __future__ import annotations

import shlex
from typing import Any, Optional

from .conditions import Ports, overlaps


def filter_rules(saved: str) -> dict[str, list[list[str]]]:
    """Return the words of each rule of iptables' filter table by chain, in order."""
    found: dict[str, list[list[str]]] = {}
    table = ""
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith("-A ") and table == "filter":
            words = shlex.split(line)
            found.setdefault(words[1], []).append(words)
    return found


def extended(expressions: list[Any]) -> bool:
    """Tell whether a rule has a condition that nft does not tell."""
    return any(one.get("xt", {}).get("type") == "match" for one in expressions)


def holds(name: str, words: list[str], ports: Ports) -> Optional[Ports]:
    """Return the ports for which a condition holds for a first packet; None where not understood.

    words are those of the whole rule; none where iptables-save did not tell them.
    """
    if name == "comment":
        return ports
    if name in ("conntrack", "state"):
        found = option(words, "--ctstate") or option(words, "--state")
        return None if found is None else ports if "NEW" in found else []
    if name == "addrtype":
        found = option(words, "--dst-type")
        # What a peer sends to this host is for one of its own addresses.
        return None if found is None else ports if {"LOCAL", "UNICAST"} & set(found) else []
    if name == "multiport":
        found = option(words, "--dports")
        return None if found is None else inside(found, ports)
    return None


def option(words: list[str], name: str) -> Optional[list[str]]:
    """Return the values of an option; None where it is not there or is negated."""
    if name not in words:
        return None
    place = words.index(name)
    return None if words[place - 1] == "!" else words[place + 1].split(",")


def inside(listed: list[str], ports: Ports) -> Optional[Ports]:
    """Return the part of some ports that a list of ports and ranges names."""
    if not all(part.isdigit() for one in listed for part in one.split(":")):
        return None
    ends = [[int(part) for part in one.split(":")] for one in listed]
    known = [(one[0], one[-1]) for one in ends]
    return [one for port in ports for one in overlaps(port, known)]
