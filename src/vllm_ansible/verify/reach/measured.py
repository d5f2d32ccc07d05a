"""What one cluster's hosts measured of each other, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vllm_ansible.node.reach.ports import fold, unfold

Pair = tuple[str, str]  # who measured, whom


@dataclass(frozen=True)
class Measured:
    """Every host's responder and what every probe found.

    `addresses`, `responders` and `answered` (whether its responder ran to the end) are by host,
    `probes` by pair; `purposes` is what each planned port is for.
    """

    addresses: Mapping[str, str]
    responders: Mapping[str, Mapping[str, Any]]
    answered: Mapping[str, bool]
    probes: Mapping[Pair, Mapping[str, Any]]
    purposes: Mapping[int, str]

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names of all hosts, in their order."""
        return tuple(self.addresses)

    def strangers(self, host: str) -> dict[int, Mapping[str, Any]]:
        """Return who has planned ports of a host that should be free."""
        return {int(one["port"]): one for one in self.responders[host]["strangers"]}

    @cached_property
    def tried(self) -> dict[Pair, frozenset[int]]:
        """Return the ports that each pair tried, without those that strangers have."""
        return {
            (one, other): frozenset(unfold(self.responders[other]["ports"]))
            - frozenset(self.strangers(other))
            for one, other in self.probes
        }

    @cached_property
    def failed(self) -> dict[Pair, dict[int, str]]:
        """Return how each port failed that a pair could not connect to."""
        tried = self.tried
        return {
            pair: {
                port: kind
                for kind, ranges in found["blocked"].items()
                for port in unfold(ranges)
                if port in tried[pair]
            }
            for pair, found in self.probes.items()
        }

    def spoken(self) -> dict[Pair, Mapping[str, Any]]:
        """Return what was found of the peers that answered with the cluster's key."""
        return {pair: found for pair, found in self.probes.items() if "round_trip_us" in found}

    def losses(self) -> dict[Pair, Mapping[str, Any]]:
        """Return the datagrams that each pair counted."""
        return {pair: found["loss"] for pair, found in self.probes.items() if "loss" in found}


def shown(ports: Any) -> str:
    """Return ports as people write them: 8000, 20000-20011."""
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in fold(ports))


def listed(names: Any) -> str:
    """Return names as people say them."""
    words = list(names)
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
