"""Measure from this host to every peer: ports, round trip, clock, loss."""

from __future__ import annotations

from typing import Any

from .connect import CONNECTED, connect_all
from .exchange import NoAnswer, Session, measure, meet
from .loss import losses
from .ports import fold, unfold

# A peer whose first ports answer nobody's key is not asked on all of them.
MEETINGS = 3


def probe(peers: dict[str, dict[str, Any]], key: bytes, seconds: float) -> dict[str, Any]:
    """Return by peer what was found.

    Each peer has `address`, `ports` (ranges to connect to) and `answers` (ports of its responder,
    the best first). Found are `blocked` (ranges by the kind of failure), and where the peer could
    be spoken to `source`, round trip, clock and loss; else `silent` says why not.
    """
    targets = {
        (peer["address"], port): name
        for name, peer in peers.items()
        for port in unfold(peer["ports"])
    }
    outcomes = connect_all(list(targets), seconds)
    connected = {target for target, kind in outcomes.items() if kind == CONNECTED}
    found: dict[str, dict[str, Any]] = {}
    sessions: dict[str, Session] = {}
    try:
        for name, peer in peers.items():
            address = peer["address"]
            blocked: dict[str, list[int]] = {}
            for target, kind in outcomes.items():
                if targets[target] == name and target not in connected:
                    blocked.setdefault(kind, []).append(target[1])
            found[name] = {"blocked": {kind: fold(ports) for kind, ports in blocked.items()}}
            try:
                answers = [port for port in peer["answers"] if (address, port) in connected]
                sessions[name] = _meet(key, address, answers, seconds)
                found[name].update(measure(sessions[name]), source=sessions[name].source)
            except (OSError, NoAnswer) as error:
                found[name]["silent"] = str(error)
        spoken = {name: one for name, one in sessions.items() if "source" in found[name]}
        slowest = max((found[name]["round_trip_us"] for name in spoken), default=0.0)
        for name, loss in losses(spoken, slowest / 1e6).items():
            found[name]["loss"] = loss
    finally:
        for session in sessions.values():
            session.connection.close()
    return found


def _meet(key: bytes, address: str, ports: list[int], seconds: float) -> Session:
    """Return a session over the first of the ports whose answer proves the key."""
    said = "no port of its responder can be reached"
    for port in ports[:MEETINGS]:
        try:
            return meet(key, address, port, seconds)
        except NoAnswer as error:
            said = str(error)
    raise NoAnswer(said)
