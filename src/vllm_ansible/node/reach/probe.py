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
                sessions[name], figures = _speak(key, address, answers, seconds)
                found[name].update(figures, source=sessions[name].source)
            except NoAnswer as error:
                found[name]["silent"] = str(error)
        slowest = max((found[name]["round_trip_us"] for name in sessions), default=0.0)
        for name, loss in losses(sessions, slowest / 1e6).items():
            found[name]["loss"] = loss
    finally:
        for session in sessions.values():
            session.connection.close()
    return found


def _speak(
    key: bytes, address: str, ports: list[int], seconds: float
) -> tuple[Session, dict[str, Any]]:
    """Return a session over the first of the ports whose answer proves the key, and its figures.

    A responder that is given no time for a while is asked again, over the next port.
    """
    said = "no port of its responder can be reached"
    for port in ports[:MEETINGS]:
        try:
            session = meet(key, address, port, seconds)
        except NoAnswer as error:
            said = str(error)
            continue
        try:
            return session, measure(session)
        except (OSError, NoAnswer) as error:
            session.connection.close()
            said = f"{address}:{port}: {error}"
    raise NoAnswer(said)
