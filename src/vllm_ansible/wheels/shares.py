"""Who builds a wheel, who hands it to the controller, and who takes it from there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Share:
    """What one host does, by key: build, hand to the controller what it has, take what it lacks."""

    builds: list[str] = field(default_factory=list)
    gives: list[str] = field(default_factory=list)
    takes: list[str] = field(default_factory=list)


def shares(
    wanted: Mapping[str, Sequence[str]],
    present: Mapping[str, Collection[str]],
    cached: Collection[str],
) -> dict[str, Share]:
    """Return the share of each host, so that nothing is built twice or that exists already.

    wanted is what each host needs, present what it has of it, cached what the controller has. Those
    that need the same key are alike in all that matters to it: any of them can build it,
    and several wheels are built by several hosts at once.
    """
    found = {host: Share() for host in wanted}
    for key in dict.fromkeys(key for keys in wanted.values() for key in keys):
        needing = [host for host, keys in wanted.items() if key in keys]
        having = [host for host in needing if key in present.get(host, ())]
        lacking = [host for host in needing if host not in having]
        if key not in cached and having:
            found[having[0]].gives.append(key)
        elif key not in cached:
            builder = min(lacking, key=lambda host: len(found[host].builds))
            found[builder].builds.append(key)
            found[builder].gives.append(key)
            lacking.remove(builder)
        for host in lacking:
            found[host].takes.append(key)
    return found
