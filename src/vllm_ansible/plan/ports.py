"""Every port an engine uses, from its place in the list: nothing is left to chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

API_BASE = 8000
INTERNAL_BASE = 20000
BLOCK = 100
# Of each block, for Ray's workers or for data ranks.
WORKERS = 80
# Of each block, where an engine answers in a cluster whose ports were moved.
MOVED_API = 15
RESERVED_LAST = 1023
# Linux hands out ports from here on to whoever connects, so blocks stay below.
EPHEMERAL_FIRST = 32768


@dataclass(frozen=True)
class Ports:
    """The ports of one engine; the internal ones are the same numbers on each of its hosts."""

    api: int
    gcs: int
    dashboard: int
    client: int
    node_manager: int
    object_manager: int
    runtime_env_agent: int
    dashboard_agent_listen: int
    dashboard_agent_grpc: int
    metrics: int
    master: int
    autoscaler_metrics: int
    dashboard_metrics: int
    worker_first: int
    worker_last: int

    @property
    def data_master(self) -> int:
        """Return where data ranks meet: the first of the block, since they have no Ray.

        vLLM 0.9 counts on from there for each further group.
        """
        return self.gcs


def ports_for(index: int, api: int | None = None, base: int = INTERNAL_BASE) -> Ports:
    """Return the ports of the engine with this index; base is the first of its cluster.

    Whoever moves a cluster's ports makes room for another one on the same hosts, which would
    answer at the usual port as well.
    """
    block = base + BLOCK * index
    own = API_BASE + index if base == INTERNAL_BASE else block + MOVED_API
    return Ports(
        api=api or own,
        gcs=block,
        dashboard=block + 1,
        client=block + 2,
        node_manager=block + 3,
        object_manager=block + 4,
        runtime_env_agent=block + 5,
        dashboard_agent_listen=block + 6,
        dashboard_agent_grpc=block + 7,
        metrics=block + 8,
        master=block + 9,
        autoscaler_metrics=block + 10,
        dashboard_metrics=block + 11,
        worker_first=block + BLOCK - WORKERS,
        worker_last=block + BLOCK - 1,
    )


@dataclass(frozen=True)
class ClusterPorts:
    """What a cluster itself listens on, while links are measured and while weights arrive."""

    coordinator: int
    store: int
    weights: int


def cluster_ports(base: int = INTERNAL_BASE) -> ClusterPorts:
    """Return those ports: of the first engine's block, where none of its own listens."""
    return ClusterPorts(coordinator=base + 12, store=base + 13, weights=base + 14)


def indices_of(names: Sequence[str], had: Mapping[str, int]) -> dict[str, int]:
    """Return each engine's index: the one it had, else the lowest that was never another's."""
    used = set(had.values())
    spare = iter(index for index in range(len(used) + len(names)) if index not in used)
    return {name: had[name] if name in had else next(spare) for name in names}


def blocks_from(base: int) -> int:
    """Return how many engines have room for their ports from a base on."""
    return max(0, EPHEMERAL_FIRST - base) // BLOCK if base > RESERVED_LAST else 0


def base_of(ports: Ports, index: int) -> int:
    """Return the first internal port of the cluster whose engine of this index has these."""
    return ports.gcs - BLOCK * index


def shared_ports(first: Ports, second: Ports) -> tuple[int, ...]:
    """Return the ports two engines would both listen on."""
    return tuple(sorted(_listened(first) & _listened(second)))


def _listened(ports: Ports) -> set[int]:
    """Return every port of an engine, its workers' included."""
    workers = range(ports.worker_first, ports.worker_last + 1)
    return {*asdict(ports).values(), *workers}
