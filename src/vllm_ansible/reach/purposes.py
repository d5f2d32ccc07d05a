"""What every planned port of a cluster is for, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vllm_ansible.planner.engines import parse_engines
from vllm_ansible.planner.ports import cluster_ports, indices_of, ports_for

OF_THE_KERNEL = "the kernel's own range: gloo, NCCL"
API = "the API"
MASTER = "torch's rendezvous"
WORKERS = "Ray workers"
RANKS = "APIs of data ranks"
DATA_MASTER = "where data ranks meet"
CLUSTER = {
    "coordinator": "the coordinator of the ranks that measure links",
    "store": "the store of the ranks that measure links",
    "weights": "weights, passed on from host to host",
}
MOST_SHOWN = 3


def purposes(
    engines: object, port_base: int, kept: Mapping[str, Any] | None = None
) -> dict[int, str]:
    """Return the purpose of each port of every engine, and of the cluster's own.

    kept: the plan of the last run.

    Raises PlanError where the list of engines is wrong.
    """
    each = [*by_engine(engines, port_base, kept), of_cluster(port_base)]
    return {port: use for ports in reversed(each) for port, use in ports.items()}


def of_cluster(port_base: int) -> dict[int, str]:
    """Return the purpose of each port that belongs to no engine."""
    return {port: CLUSTER[name] for name, port in asdict(cluster_ports(port_base)).items()}


def by_engine(
    engines: object, port_base: int, kept: Mapping[str, Any] | None = None
) -> list[dict[int, str]]:
    """Return the purpose of each port, engine by engine."""
    typed = parse_engines(engines)
    had = {str(one["name"]): int(one["index"]) for one in (kept or {}).get("engines", ())}
    places = indices_of([engine.name for engine in typed], had)
    found = []
    for engine in typed:
        numbers = asdict(ports_for(places[engine.name], engine.port, port_base))
        workers = range(numbers.pop("worker_first"), numbers.pop("worker_last") + 1)
        ranked = engine.executor == "dp"
        words = dict.fromkeys(workers, RANKS if ranked else WORKERS)
        names = {"api": API, "master": MASTER, **({"gcs": DATA_MASTER} if ranked else {})}
        for field, port in numbers.items():
            words[port] = names.get(field, f"Ray {field.replace('_', ' ')}")
        found.append({port: f"{words[port]} of engine {engine.name}" for port in sorted(words)})
    return found


def told(ports: Sequence[int], known: Mapping[int, str]) -> str:
    """Return what some ports are for, in a few words."""
    words = list(dict.fromkeys(known.get(port, OF_THE_KERNEL) for port in sorted(ports)))
    more = len(words) - MOST_SHOWN
    shown = "; ".join(words[:MOST_SHOWN] if more > 1 else words)
    return f"{shown}; and {more} other uses" if more > 1 else shown
