"""What every planned port of a cluster is for, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from vllm_ansible.plan.engines import Engine, parse_engines
from vllm_ansible.plan.pairs import side_channel
from vllm_ansible.plan.ports import WORKERS as DATA_RANKS
from vllm_ansible.plan.ports import Ports, cluster_ports, indices_of, ports_for
from vllm_ansible.plan.roles import SERVE

OF_THE_KERNEL = "the kernel's own range: gloo, NCCL"
API = "the API"
MASTER = "torch's rendezvous"
WORKERS = "Ray workers"
DATA_MASTER = "the meeting of data ranks"
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
        # What one entry became has a block each.
        others = [
            (str(one["name"]), int(one["index"]))
            for one in (kept or {}).get("engines", ())
            if one.get("part_of") == engine.name
        ]
        for name, index in ((engine.name, places[engine.name]), *others):
            own = engine.port if name == engine.name else None
            ports = ports_for(index, own, port_base)
            words = _of_data_ranks(engine, ports) if engine.executor == "dp" else _of_ray(ports)
            if engine.role != SERVE:
                words = _of_a_set(engine, ports)
            found.append({port: f"{words[port]} of engine {name}" for port in sorted(words)})
    return found


def _of_ray(ports: Ports) -> dict[int, str]:
    """Return the use of each port of an engine whose ranks find each other by Ray or torch."""
    numbers = asdict(ports)
    workers = range(numbers.pop("worker_first"), numbers.pop("worker_last") + 1)
    words = dict.fromkeys(workers, WORKERS)
    names = {"api": API, "master": MASTER}
    for field, port in numbers.items():
        words[port] = names.get(field, f"Ray {field.replace('_', ' ')}")
    return words


def _of_data_ranks(engine: Engine, ports: Ports) -> dict[int, str]:
    """Return the use of each port of an engine of data ranks; all there may be, if auto."""
    count = engine.layout.data if engine.layout else DATA_RANKS
    ranks = range(ports.worker_first, ports.worker_first + count)
    return {
        ports.api: API,
        ports.data_master: DATA_MASTER,
        **{port: f"the API of data rank {rank}" for rank, port in enumerate(ranks)},
    }


def _of_a_set(engine: Engine, ports: Ports) -> dict[int, str]:
    """Return the use of each port of a prefill or decode engine."""
    return {
        ports.api: API,
        ports.worker_first: f"the API of {engine.role}",
        side_channel(asdict(ports)): "what KV caches can be fetched",
    }


def told(ports: Sequence[int], known: Mapping[int, str]) -> str:
    """Return what some ports are for, in a few words."""
    words = list(dict.fromkeys(known.get(port, OF_THE_KERNEL) for port in sorted(ports)))
    more = len(words) - MOST_SHOWN
    shown = "; ".join(words[:MOST_SHOWN] if more > 1 else words)
    return f"{shown}; and {more} other uses" if more > 1 else shown
