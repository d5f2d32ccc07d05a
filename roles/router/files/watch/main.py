"""The watch of a router: which ranks of one engine compute; where needed, the idle pump.

HAProxy sees by itself whether a rank listens. It cannot tell one that hangs from one whose queue is
long, and it sends no requests of its own to who has none. Standard library only, Python 3.9.
"""

from __future__ import annotations

import sys
import threading

import settings
from agent import Agent
from awake import Awake
from figures import Figures
from probing import Probe
from pump import Pump
from traffic import Traffic


def main(path: str) -> None:
    """Watch until somebody ends this process."""
    told = settings.read(path)
    traffic = Traffic(told.stats_socket, told.quiet_seconds)
    awake = Awake()
    probes = {rank.name: Probe(told, rank, traffic, awake) for rank in told.ranks}
    pump = Pump(told, probes) if told.pump else None
    agent = Agent(told.agent_port, probes)
    page = Figures(told.figures_socket, probes, pump)
    awake.start()
    with agent, page:
        traffic.start()
        for probe in probes.values():
            probe.start()
        if pump is not None:
            pump.start()
        threading.Thread(target=page.serve_forever, daemon=True).start()
        print(f"watching {len(probes)} ranks{' with the idle pump' if pump else ''}", flush=True)
        agent.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
