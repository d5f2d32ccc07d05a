"""The measurement of one cluster's links, from the first rank that connects to the last figure."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from ..cluster.key import secret
from .channel import key_of
from .coordinator import Coordinator
from .exchanges import Exchanges
from .operations import Operations, Report, Wishes


def measure(lead: Coordinator, wishes: Wishes, report: Report) -> dict[str, Any]:
    """Measure with ranks that are joined; return what library/collective_check.py documents."""
    started = time.monotonic()
    before = _tcp(lead)
    operations = Operations(lead, wishes, report)
    inside = operations.inside()
    across = operations.across() if len(lead.hosts) > 1 else {}
    rates = [one["all_reduce"]["busbw"] for one in (*inside.values(), across) if one]
    exchanges = Exchanges(lead, wishes, min(rates, default=0.0), report)
    hosts = exchanges.hosts()
    cards = exchanges.cards()
    after = _tcp(lead)
    return {
        "ranks": len(lead.places),
        "hosts": {host: len(ranks) for host, ranks in lead.hosts.items()},
        "versions": {name: lead.hellos[0].get(name, "") for name in ("torch", "nccl", "device")},
        "links": lead.hellos[0].get("links", {}),
        "across": across,
        "inside": inside,
        **hosts,
        "cards": cards,
        "retransmitted": {host: _part(before[host], after[host]) for host in lead.hosts},
        "transport": lead.ask({0: {"do": "transport"}})[0]["lines"],
        "seconds": time.monotonic() - started,
    }


def check(
    hosts: Mapping[str, int],
    place: tuple[str, int],
    store_port: int,
    key_file: str,
    wishes: Wishes,
    seconds: float,
    report: Report,
) -> dict[str, Any]:
    """Wait at a place, an address and a port, until all ranks are there, and measure with them.

    hosts: the number of ranks by host, the one with this address first. seconds: how long to wait
    for ranks. Raises CollectiveError, and Failure where the cluster's key is not to be read.
    """
    key = key_of(secret(key_file))
    lead = Coordinator(hosts)
    with socket.create_server(place, backlog=4096) as listener, closing(lead):
        lead.gather(
            listener, key, seconds, lambda done, of: report(done, of, "ranks", "waiting for ranks")
        )
        report(0, None, "", f"{len(lead.places)} ranks form their groups")
        join(lead, (place[0], store_port))
        return measure(lead, wishes, report)


def join(lead: Coordinator, store: tuple[str, int]) -> None:
    """Let the ranks form their groups, all of them and those of each host.

    store: address and port at which the first rank opens their rendezvous.
    """
    world = list(range(len(lead.places)))
    members = [world, *(ranks for ranks in lead.hosts.values() if len(ranks) > 1)]
    wanted = {"do": "join", "members": members, "store": list(store)}
    lead.ask({rank: {**wanted, "rank": rank} for rank in world})


def _tcp(lead: Coordinator) -> dict[str, dict[str, Any]]:
    answers = lead.ask({ranks[0]: {"do": "tcp"} for ranks in lead.hosts.values()})
    return {lead.places[rank][0]: answer for rank, answer in answers.items()}


def _part(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Return what part of the segments was sent again."""
    sent = after["sent"] - before["sent"]
    return (after["again"] - before["again"]) / sent if sent else 0.0
