"""Find the host, the pair or the ports that blocked connections have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

Pair = tuple[str, str]  # who connects, to whom
Ports = Mapping[Pair, frozenset[int]]

EVERYONE = "everyone"  # no host reaches any other
HOST = "host"  # a host reaches nobody, and nobody reaches it
INTO = "into"  # nobody reaches a host
OUT_OF = "out of"  # a host reaches nobody
PAIR = "pair"  # a host does not reach another
PORTS_INTO = "ports into"  # nobody reaches some ports of a host
PORTS_OUT_OF = "ports out of"  # a host reaches some ports of nobody
PORTS = "ports"  # a host does not reach some ports of another


@dataclass(frozen=True)
class Blocked:
    """Connections that fail for what is likely one cause."""

    scope: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    ports: tuple[int, ...]
    both_ways: bool = False

    def pairs(self) -> list[Pair]:
        """Return who does not reach whom."""
        one_way = [(one, other) for one in self.sources for other in self.targets if one != other]
        return [*one_way, *((b, a) for a, b in one_way)] if self.both_ways else one_way


def attribute(tried: Ports, failed: Ports) -> list[Blocked]:
    """Return the fewest causes that explain every failed connection, the widest first.

    `tried` has every pair that was measured. A host is blamed only where at least two peers agree.
    """
    left = {pair: set(ports) for pair, ports in failed.items() if ports}
    whole = {pair for pair, ports in left.items() if ports >= tried[pair]}
    hosts = list(dict.fromkeys(name for pair in tried for name in pair))
    found: list[Blocked] = []

    def explain(cause: Blocked) -> None:
        found.append(cause)
        for pair in cause.pairs():
            whole.discard(pair)
            left[pair] = left.get(pair, set()) - set(cause.ports)

    if whole and whole == set(tried) and len(hosts) > 2:
        ports = _all(tried, whole)
        return [Blocked(EVERYONE, tuple(hosts), tuple(hosts), ports)]
    choices: tuple[tuple[str, Callable[[str, Pair], bool]], ...] = (
        (HOST, lambda host, pair: host in pair),
        (INTO, lambda host, pair: host == pair[1]),
        (OUT_OF, lambda host, pair: host == pair[0]),
    )
    for scope, concerns in choices:
        # Judged before any is explained: two hosts that are cut off are both named.
        open_pairs = [pair for pair in tried if not _explained(pair, found)]
        of_host = {host: [pair for pair in open_pairs if concerns(host, pair)] for host in hosts}
        for host in [host for host in hosts if _peers_agree(host, of_host[host], whole)]:
            others = tuple(
                dict.fromkeys(name for pair in of_host[host] for name in pair if name != host)
            )
            sources, targets = (others, (host,)) if scope == INTO else ((host,), others)
            ports = _all(tried, of_host[host])
            explain(Blocked(scope, sources, targets, ports, both_ways=scope == HOST))
    for pair in [one for one in tried if one in whole]:
        if pair in whole:
            both = (pair[1], pair[0]) in whole
            ports = _all(tried, [pair, (pair[1], pair[0])] if both else [pair])
            explain(Blocked(PAIR, (pair[0],), (pair[1],), ports, both_ways=both))
    partly: list[Blocked] = []
    for scope, end in ((PORTS_INTO, 1), (PORTS_OUT_OF, 0)):
        for host in hosts:
            pairs = [pair for pair in tried if pair[end] == host and not _explained(pair, found)]
            common = (
                set.intersection(*(left.get(pair, set()) for pair in pairs)) if pairs else set()
            )
            if len(pairs) > 1 and common:
                others = tuple(pair[1 - end] for pair in pairs)
                sources, targets = (others, (host,)) if end else ((host,), others)
                cause = Blocked(scope, sources, targets, tuple(sorted(common)))
                partly.append(cause)
                for pair in pairs:
                    left[pair] -= common
    for pair, ports_left in left.items():
        if ports_left:
            partly.append(Blocked(PORTS, (pair[0],), (pair[1],), tuple(sorted(ports_left))))
    return [*found, *_merged(partly)]


def _peers_agree(host: str, pairs: list[Pair], whole: set[Pair]) -> bool:
    """Tell whether all of these pairs of a host fail, with at least two peers."""
    others = {name for pair in pairs for name in pair} - {host}
    return len(others) > 1 and all(pair in whole for pair in pairs)


def _explained(pair: Pair, found: Iterable[Blocked]) -> bool:
    """Tell whether a pair's failure is explained as a whole."""
    return any(pair in cause.pairs() for cause in found)


def _all(tried: Ports, pairs: Iterable[Pair]) -> tuple[int, ...]:
    return tuple(sorted(set().union(*(tried[pair] for pair in pairs if pair in tried))))


def _merged(causes: list[Blocked]) -> list[Blocked]:
    """Join causes that say the same of several hosts, or of both directions of a pair."""
    found: list[Blocked] = []
    for cause in causes:
        for place, other in enumerate(found):
            if (other.scope, other.ports) != (cause.scope, cause.ports):
                continue
            if cause.scope == PORTS_INTO:
                sources = tuple(dict.fromkeys((*other.sources, *cause.sources)))
                found[place] = replace(
                    other, sources=sources, targets=other.targets + cause.targets
                )
                break
            if cause.scope == PORTS and other.pairs() == [(cause.targets[0], cause.sources[0])]:
                found[place] = replace(other, both_ways=True)
                break
        else:
            found.append(cause)
    return found
