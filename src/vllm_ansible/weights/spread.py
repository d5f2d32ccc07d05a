"""The way of each file through a cluster: in at one host, then from host to host in a chain.

A chain loads every link once in each direction, so all hosts have a file about when the first one
has. Files enter at different hosts in turn, so that the outside line of each is used, and no byte
enters twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

# Files that arrive at once from outside, over all hosts: enough to fill a line with connections.
AT_ONCE = 16
# Threads of one host that wait for a piece; they cost little while they wait.
MOST_STREAMS = 64


def writers(
    hosts: Sequence[str], marks: Mapping[str, str], outside: Collection[str]
) -> dict[str, str]:
    """Return for each host who brings its models: of those that share a directory, one for all.

    marks: of each host's directory of models; a host without a mark has one of its own. Two that
    write to the same directory would each wait for what the other one is to bring.
    """
    found = {}
    for host in hosts:
        mark = marks.get(host, "")
        sharing = [other for other in hosts if mark and marks.get(other) == mark] or [host]
        found[host] = next((other for other in sharing if other in outside), sharing[0])
    return found


def chain(
    number: int,
    name: str,
    hosts: Sequence[str],
    has: Mapping[str, Collection[str]],
    outside: Sequence[str],
) -> list[str]:
    """Return the hosts in the order in which they get a file; the first has it or fetches it.

    number: the file's place in its model. hosts: those that need the model. has: what each holds.
    outside: the hosts that ask the hub; where none of them needs the model, its first host does.
    """
    holders = [host for host in hosts if name in has.get(host, ())]
    entries = holders or [host for host in hosts if host in outside] or list(hosts[:1])
    first = hosts.index(entries[number % len(entries)])
    ring = [*hosts[first:], *hosts[:first]]
    if not holders:
        return ring
    # The first one passes it on; the other holders are asked where it fails.
    lead = [*holders[number % len(holders) :], *holders[: number % len(holders)]]
    return [*reversed(lead), *(host for host in ring if host not in holders)]


def upstream(
    host: str,
    names: Sequence[str],
    hosts: Sequence[str],
    has: Mapping[str, Collection[str]],
    outside: Sequence[str],
) -> dict[str, dict[str, list[str]]]:
    """Return for each file the hosts that can send it to this one.

    before: those that get it earlier, nearest first. beside: those that come later in the chain and
    have it all the same, of use where this host's own copy turns out to be damaged.
    """
    found = {}
    for number, name in enumerate(names):
        order = chain(number, name, hosts, has, outside)
        place = order.index(host)
        later = [other for other in order[place + 1 :] if name in has.get(other, ())]
        found[name] = {"before": order[:place][::-1], "beside": later}
    return found


def width(outside: int, workers: int = 0, streams: int = 0) -> tuple[int, int]:
    """Return how many files each host takes at once from the hub, and how many from its peers.

    outside: number of hosts that ask the hub. workers, streams: what was asked for, if anything.
    A host has to take part in every file that is arriving somewhere: what it leaves for later, its
    line has to make up for when the line from outside is idle.
    """
    workers = workers or max(1, -(-AT_ONCE // max(1, outside)))
    return workers, streams or min(MOST_STREAMS, max(4, workers * outside))
