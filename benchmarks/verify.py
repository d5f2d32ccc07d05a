"""How long it takes to find what is slow, against testing pairs one by one and one all-reduce.

    python benchmarks/verify.py --hosts 2 4 8 16

Needs root: makes a lab whose links are shaped to 40 Mbit/s, far below what the processors carry.
All sides move the same bytes between the same ranks, which are started once for all of them: what
it costs to start them anew for each pair, as a loop over mpirun would, comes on top and is printed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vllm_ansible.lab import Lab
from vllm_ansible.lab.ranks import Ranks
from vllm_ansible.node.collectives.exchanges import Exchanges, Rail
from vllm_ansible.node.collectives.operations import ALL, Operations, Wishes

RATE = 40
WISHES = Wishes(iterations=3)


def silent(*_: Any, **__: Any) -> None:
    """Report to nobody."""


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call and what it returned."""
    started = time.monotonic()
    found = act()
    return time.monotonic() - started, found


def one_by_one(exchanges: Exchanges) -> dict[tuple[str, str], float]:
    """Measure every pair of hosts with nobody else on the network."""
    hosts = exchanges.lead.hosts
    found = {}
    for first, second in itertools.combinations(hosts, 2):
        rail = Rail((hosts[first][0], hosts[second][0]))
        exchanges.run([rail])
        found[first, second] = rail.gbs
    return found


def sides(ranks: Ranks) -> dict[str, Any]:
    """Return what each side takes on the links as they are, and what it names."""
    exchanges = Exchanges(ranks.lead, WISHES, RATE / 8000, silent)
    # Connections open at first use; neither side shall pay for them.
    one_by_one(exchanges)
    search_seconds, searched = timed(exchanges.hosts)
    pairs_seconds, _ = timed(lambda: one_by_one(exchanges))
    operations = Operations(ranks.lead, WISHES, silent)
    reduce_seconds, reduced = timed(lambda: operations.once("all_reduce", 1 << 20, ALL))
    whole_seconds, _ = timed(ranks.measure)
    return {
        "search_seconds": round(search_seconds, 2),
        "rounds": searched["rounds"],
        "names": [searched["culprit"]["kind"], *searched["culprit"]["members"]],
        "one_by_one_seconds": round(pairs_seconds, 2),
        "ratio": round(pairs_seconds / search_seconds, 1),
        "all_reduce_seconds": round(reduce_seconds, 2),
        "all_reduce_mbit": round(reduced[""]["busbw"] * 8000, 1),
        "whole_seconds": round(whole_seconds, 2),
    }


def compare(lab: Lab) -> dict[str, Any]:
    """Return the figures of a lab's hosts, healthy and with one slow host."""
    names = tuple(host.name for host in lab.record.hosts)
    for name in names:
        lab.link(name).limit(rate=f"{RATE}mbit")
    with Ranks(lab, names, wishes=WISHES) as ranks:
        healthy = sides(ranks)
        lab.link(names[-1]).limit(rate=f"{RATE // 3}mbit")
        return {
            "hosts": len(names),
            "pairs": len(names) * (len(names) - 1) // 2,
            "start_seconds": round(ranks.start_seconds, 1),
            "healthy": healthy,
            "one_host_at_a_third": sides(ranks),
        }


def main() -> int:
    """Print one line of JSON for each number of hosts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 8, 16])
    wanted = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("a lab of real hosts needs root")
    for count in wanted.hosts:
        with (
            TemporaryDirectory() as place,
            Lab.create(count, "bench-verify", root=Path(place)) as lab,
        ):
            print(json.dumps(compare(lab)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
