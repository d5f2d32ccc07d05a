"""Choose the hosts and devices of one engine, whole pipeline stages on one host if they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError, Problem, close_match


@dataclass(frozen=True)
class Capacity:
    """What one host offers, and the devices no engine has taken yet.

    `device` is what its devices are, None where that is not known.
    """

    host: str
    accelerator: str
    count: int
    free: tuple[int, ...]
    device: Accelerator | None = None

    @classmethod
    def whole(
        cls,
        host: str,
        accelerator: str,
        count: int,
        device: Accelerator | None = None,
        indices: Sequence[int] = (),
    ) -> Capacity:
        """Return a host on which nothing is planned yet.

        indices: the numbers of the devices that answer, where they are known; else 0 and on.
        """
        answering = indices if len(indices) >= count else range(count)
        return cls(host, accelerator, count, tuple(answering[:count]), device)

    def without(self, devices: set[int]) -> Capacity:
        """Return the host with these devices taken."""
        return replace(self, free=tuple(one for one in self.free if one not in devices))


@dataclass(frozen=True)
class Rank:
    """One rank of an engine and the device it runs on."""

    rank: int
    host: str
    device: int


@dataclass(frozen=True)
class Placement:
    """Where an engine goes, and why there."""

    layout: Layout
    hosts: tuple[str, ...]
    ranks: tuple[Rank, ...]
    reasons: tuple[str, ...]


def place(engine: Engine, capacities: Sequence[Capacity], before: Sequence[str] = ()) -> Placement:
    """Return the ranks of an engine, on the first hosts in inventory order that have room.

    Those it was on before come first: they have its weights and its compiled kernels.
    """
    candidates = allowed(engine, capacities, before)
    layout = engine.layout or Layout(tensor=1, pipeline=engine.nodes or 1)
    counts = host_counts(layout, engine.nodes)
    if not counts:
        raise PlanError(_uneven(engine, layout))
    for count in counts:
        per_host = layout.world_size // count
        roomy = [host for host in candidates if len(host.free) >= per_host][:count]
        if len(roomy) == count and len({host.accelerator for host in roomy}) == 1:
            return _placement(engine, layout, roomy, per_host, before)
    raise PlanError(_too_large(engine, layout, counts, candidates))


def host_counts(layout: Layout, nodes: int | None) -> tuple[int, ...]:
    """Return how many hosts a layout may span, best first.

    A stage to a host is best; then several whole stages to a host, spread as wide as they go;
    then a stage over several hosts, as few as will do.
    """
    world = layout.world_size
    if nodes:
        return (nodes,) if world % nodes == 0 else ()
    whole = [n for n in range(layout.pipeline, 0, -1) if layout.pipeline % n == 0]
    split = [layout.pipeline * n for n in range(2, layout.tensor + 1) if layout.tensor % n == 0]
    return (*whole, *split)


def allowed(
    engine: Engine, capacities: Sequence[Capacity], before: Sequence[str] = ()
) -> list[Capacity]:
    """Return the hosts this engine may use, in the order the user gave, else its old ones first."""
    by_name = {capacity.host: capacity for capacity in capacities}
    unknown = [host for host in engine.hosts if host not in by_name]
    if unknown:
        raise PlanError(
            [
                Problem(
                    f"engine {engine.name} is to run on {host}, which is not in the group gpu",
                    expected=f"hosts of the group gpu: {', '.join(by_name)}",
                    found=host,
                    where=f"engines {engine.name}.hosts",
                    fix=close_match(host, by_name) or "add the host to the group or correct it",
                )
                for host in unknown
            ]
        )
    if engine.hosts:
        return [by_name[host] for host in engine.hosts]
    if len({capacity.accelerator for capacity in capacities}) > 1:
        return list(capacities)  # another order could put two kinds side by side
    known = [by_name[host] for host in before if host in by_name]
    return known + [capacity for capacity in capacities if capacity not in known]


def _placement(
    engine: Engine,
    layout: Layout,
    hosts: Sequence[Capacity],
    per_host: int,
    before: Sequence[str],
) -> Placement:
    """Number the ranks host by host, as Ray and vLLM do."""
    places = [(host.host, device) for host in hosts for device in host.free[:per_host]]
    return Placement(
        layout=layout,
        hosts=tuple(host.host for host in hosts),
        ranks=tuple(Rank(rank, host, device) for rank, (host, device) in enumerate(places)),
        reasons=_reasons(engine, layout, [host.host for host in hosts], per_host, before),
    )


def chosen(engine: Engine, hosts: Sequence[str], before: Sequence[str]) -> str:
    """Return why an engine has these hosts."""
    if engine.hosts:
        return "named for this engine"
    if set(hosts) <= set(before):
        return "where it was before it changed"
    return "first with room, in inventory order"


def _reasons(
    engine: Engine, layout: Layout, hosts: Sequence[str], per_host: int, before: Sequence[str]
) -> tuple[str, ...]:
    """Return why this layout, on these hosts."""
    size = f"TP{layout.tensor} PP{layout.pipeline}"
    if engine.layout is not None:
        why = f"{size} as asked"
    elif engine.nodes:
        why = f"{size}: layout auto over {engine.nodes} hosts puts one stage on each"
    else:
        why = f"{size}: layout auto takes one rank until memory is planned"
    ranks = f"{per_host} rank{'s' if per_host > 1 else ''}"
    where = f"{ranks} on each of {', '.join(hosts)}" if len(hosts) > 1 else f"{ranks} on {hosts[0]}"
    return (why, f"{where} ({chosen(engine, hosts, before)})")


def _uneven(engine: Engine, layout: Layout) -> Problem:
    """Return the refusal of a number of hosts that does not divide the ranks."""
    return Problem(
        f"engine {engine.name} has {layout.world_size} ranks "
        f"(tensor {layout.tensor} x pipeline {layout.pipeline}), "
        f"which {engine.nodes} hosts cannot share evenly",
        expected=f"a number of hosts that divides {layout.world_size}",
        found=f"nodes: {engine.nodes}",
        where=f"engines {engine.name}.nodes",
        fix="change nodes or the layout",
    )


def _too_large(
    engine: Engine, layout: Layout, counts: Sequence[int], hosts: Sequence[Capacity]
) -> Problem:
    """Return the refusal of a layout for which there is no room, with every number in it."""
    shapes = " or ".join(f"{n} x {layout.world_size // n}" for n in sorted(counts))
    room = ", ".join(f"{host.host} {len(host.free)} of {host.count}" for host in hosts) or "no host"
    kinds = sorted({host.accelerator for host in hosts})
    processors = len(kinds) == 1 and not has_devices(kinds[0])
    more = "raise accelerator_count (ranks a CPU host may run)" if processors else "add hosts"
    return Problem(
        f"engine {engine.name} needs {layout.world_size} accelerators "
        f"(tensor {layout.tensor} x pipeline {layout.pipeline}) on {shapes} (hosts x ranks), "
        f"and free are: {room}",
        expected=f"hosts x free accelerators of one kind: {shapes}",
        found=f"{room} ({', '.join(kinds)})",
        where=f"engines {engine.name}.layout",
        fix=f"make the layout smaller or {more}",
    )
