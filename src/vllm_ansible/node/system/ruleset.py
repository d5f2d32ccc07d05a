"""Which ports the rules of nftables keep from a peer: rules are read, no packet is sent.

Rules of iptables-nft, ufw and firewalld are nftables rules too; those of iptables-legacy are not.
Where a rule has a condition that is not understood, the answer is unsure rather than wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from .conditions import (
    Ports,
    chooses,
    condition,
    covers,
    less,
    overlaps,
    port_range,
    same,
    verdict_of,
)
from .extensions import extended, filter_rules, holds

DIRECTIONS = {"prerouting": "saddr", "input": "saddr", "output": "daddr"}
FAMILIES = ("ip", "inet")
UNCLEAR = {"limit", "quota"}


class Packet(NamedTuple):
    """A first TCP packet: the peer, the side of the packet it is on, and our interface."""

    peer: str
    side: str
    interface: str


class Verdict(NamedTuple):
    """What is still undecided, what was refused, and whether every condition was understood."""

    open: Ports
    refused: Ports
    sure: bool


class Rules:
    """One look at a ruleset, as `nft --json list ruleset` prints it."""

    def __init__(self, ruleset: dict[str, Any], without: str = "", saved: str = "") -> None:
        """Read a ruleset, without the rules that carry a comment.

        saved is what iptables-save prints, where rules have conditions of iptables' extensions.
        """
        entries = ruleset.get("nftables", [])
        self.chains = [entry["chain"] for entry in entries if "chain" in entry]
        self.rules: dict[tuple[str, str, str], list[list[Any]]] = {}
        self.sets: dict[tuple[str, str, str], list[Any]] = {}
        told = filter_rules(saved)
        seen: dict[tuple[str, str, str], int] = {}
        for entry in entries:
            if "rule" in entry:
                one = entry["rule"]
                place = (one["family"], one["table"], one["chain"])
                seen[place] = seen.get(place, 0) + 1
                words = told.get(place[2], []) if place[:2] == ("ip", "filter") else []
                known = [{"words": words[seen[place] - 1]}] if seen[place] <= len(words) else []
                if without and one.get("comment") == without:
                    continue
                self.rules.setdefault(place, []).append([*one["expr"], *known])
            elif "set" in entry:
                one = entry["set"]
                self.sets[one["family"], one["table"], one["name"]] = one.get("elem", [])

    def refusals(self, peer: str, interface: str, ports: tuple[int, int]) -> list[dict[str, Any]]:
        """Return the chains that refuse some of the ports: family, table, chain, ports, sure."""
        found = []
        for chain in self.chains:
            side = DIRECTIONS.get(chain.get("hook", ""))
            if side is None or chain["family"] not in FAMILIES or chain.get("type") != "filter":
                continue
            place = (chain["family"], chain["table"], chain["name"])
            verdict = self._walk(place, Packet(peer, side, interface), [ports], 0)
            refused = verdict.refused
            if chain.get("policy") == "drop":
                refused = refused + verdict.open
            if refused:
                family, table, name = place
                found.append(
                    {
                        "family": family,
                        "table": table,
                        "chain": name,
                        "hook": chain["hook"],
                        "ports": [list(one) for one in sorted(refused)],
                        "sure": verdict.sure,
                    }
                )
        return found

    def _walk(
        self, place: tuple[str, str, str], packet: Packet, ports: Ports, depth: int
    ) -> Verdict:
        """Return what the rules of one chain leave of some ports."""
        refused: Ports = []
        returned: Ports = []
        # The kernel allows no deeper chains (NFT_JUMP_STACK_SIZE).
        sure = depth < 16
        for expressions in self.rules.get(place, []) if sure else []:
            matched, certain = self._matched(expressions, place, packet, ports)
            kind, target = verdict_of(expressions)
            if not matched:
                continue
            if not kind:
                sure = sure and not chooses(expressions)
                continue
            if not certain:
                sure = False  # it may or may not hold: neither accept nor refuse by it
            elif kind == "accept":
                ports = less(ports, matched)
            elif kind in ("drop", "reject"):
                ports, refused = less(ports, matched), refused + matched
            elif kind == "return":
                ports, returned = less(ports, matched), returned + matched
            else:
                inner = self._walk((*place[:2], target), packet, matched, depth + 1)
                refused, sure = refused + inner.refused, sure and inner.sure
                ports = less(ports, matched)
                if kind == "jump":
                    ports = ports + inner.open
                else:
                    returned = returned + inner.open
        return Verdict(ports + returned, refused, sure)

    def _matched(
        self, expressions: list[Any], place: tuple[str, str, str], packet: Packet, ports: Ports
    ) -> tuple[Ports, bool]:
        """Return the ports a rule holds for, and whether all its conditions are understood."""
        certain = True
        words: list[str] = next((one["words"] for one in expressions if "words" in one), [])
        for expression in expressions:
            if "match" in expression:
                part = self._holds(expression["match"], place, packet, ports)
                certain = certain and part is not None
                ports = ports if part is None else part
            elif extended([expression]):
                part = holds(expression["xt"]["name"], words, ports)
                certain = certain and part is not None
                ports = ports if part is None else part
            elif UNCLEAR & set(expression):
                certain = False
            if not ports:
                return [], True
        return ports, certain

    def _holds(
        self, match: dict[str, Any], place: tuple[str, str, str], packet: Packet, ports: Ports
    ) -> Optional[Ports]:
        """Return the ports for which one condition holds; None where it is not understood."""
        left, values = match["left"], self._values(match["right"], place)
        key = condition(left)
        if key == ("tcp", "dport") or key == ("th", "dport"):
            listed = [port_range(value) for value in values]
            known = [one for one in listed if one]
            inside = [one for port in ports for one in overlaps(port, known)]
            return less(ports, inside) if match["op"] == "!=" else inside
        if key == ("ip", packet.side):
            hit = any(covers(value, packet.peer) for value in values)
        elif key in (("meta", "iifname"), ("meta", "oifname"), ("meta", "iif"), ("meta", "oif")):
            ours = "iif" if packet.side == "saddr" else "oif"
            names = [str(value) for value in values]
            hit = key[1].startswith(ours) and any(same(one, packet.interface) for one in names)
        elif key in (("meta", "l4proto"), ("ip", "protocol"), ("meta", "nfproto")):
            hit = bool(
                {"tcp", 6, "ipv4"} & {value for value in values if not isinstance(value, dict)}
            )
        elif key == ("ct", "state"):
            hit = "new" in values
        elif key == ("ct", "status"):
            hit = False  # nothing was done yet with a first packet from a peer
        elif key[0] in ("udp", "icmp", "icmpv6", "ip6", "sctp"):
            return []
        else:
            return None
        return ports if hit != (match["op"] == "!=") else []

    def _values(self, right: Any, place: tuple[str, str, str]) -> list[Any]:
        """Return the values of a condition's right side, those of a named set too."""
        if isinstance(right, str) and right.startswith("@"):
            return self.sets.get((*place[:2], right[1:]), [])
        if isinstance(right, dict) and "set" in right:
            return list(right["set"])
        return list(right) if isinstance(right, list) else [right]
