"""Where the ranks of a data-parallel engine go: each within one host, hosts filled in order."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.layout import Capacity, Placement, Rank, allowed, chosen
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError, Problem


def place_data(
    engine: Engine, layout: Layout, capacities: Sequence[Capacity], before: Sequence[str] = ()
) -> Placement:
    """Return the devices of every data rank, rank by rank.

    Hosts are filled one after the other; those that were named or counted share the ranks evenly.
    The first host has the first rank, which the others find each other by.
    """
    candidates = allowed(engine, capacities, before)
    count = engine.nodes or len(engine.hosts)
    if count and layout.data % count:
        raise PlanError(_uneven(engine, layout, count))
    each = layout.data // count if count else None
    kinds = list(dict.fromkeys(host.accelerator for host in candidates))
    for kind in kinds:
        alike = [host for host in candidates if host.accelerator == kind]
        dealt = _deal(layout, alike, each)[: count or None]
        if sum(share for _, share in dealt) >= layout.data:
            return _placement(engine, layout, dealt, before)
    raise PlanError(_too_large(engine, layout, candidates, each))


def _deal(
    layout: Layout, hosts: Sequence[Capacity], each: int | None
) -> list[tuple[Capacity, int]]:
    """Return how many ranks each host takes, hosts without room left out."""
    dealt = []
    left = layout.data
    for host in hosts:
        room = len(host.free) // layout.tensor
        share = min(room, left) if each is None else each if room >= each else 0
        if share:
            dealt.append((host, share))
            left -= share
    return dealt


def _placement(
    engine: Engine,
    layout: Layout,
    dealt: Sequence[tuple[Capacity, int]],
    before: Sequence[str],
) -> Placement:
    places = [
        (host.host, device)
        for host, share in dealt
        for device in host.free[: share * layout.tensor]
    ]
    hosts = tuple(host.host for host, _ in dealt)
    where = ", ".join(f"{share} on {host.host}" for host, share in dealt)
    why = chosen(engine, hosts, before)
    return Placement(
        layout=layout,
        hosts=hosts,
        ranks=tuple(Rank(rank, host, device) for rank, (host, device) in enumerate(places)),
        reasons=(
            f"{layout.name} as asked",
            f"data ranks: {where} ({why}), each a server with an address of its own",
        ),
    )


def _uneven(engine: Engine, layout: Layout, count: int) -> Problem:
    key = "nodes" if engine.nodes else "hosts"
    return Problem(
        f"engine {engine.name} has {layout.data} data ranks, "
        f"which {count} hosts cannot share evenly",
        expected=f"a number of hosts that divides {layout.data}",
        found=f"{count} hosts",
        where=f"engines {engine.name}.{key}",
        fix=f"change {key} or data",
    )


def _too_large(
    engine: Engine, layout: Layout, hosts: Sequence[Capacity], each: int | None
) -> Problem:
    """Return the refusal of ranks for which there is no room, with every number in it."""
    room = ", ".join(f"{host.host} {len(host.free)} of {host.count}" for host in hosts) or "no host"
    kinds = {host.accelerator for host in hosts}
    processors = len(kinds) == 1 and not any(map(has_devices, kinds))
    more = "raise accelerator_count (ranks a CPU host may run)" if processors else "add hosts"
    share = f", {each} ranks on each of its hosts" if each else ""
    return Problem(
        f"engine {engine.name} needs {layout.data} x {layout.tensor} accelerators "
        f"(data {layout.data} x tensor {layout.tensor}), those of a rank on one host{share}, "
        f"and free are: {room}",
        expected=f"hosts of one kind with {layout.data} groups of {layout.tensor} free devices",
        found=room,
        where=f"engines {engine.name}.layout",
        fix=f"make the layout smaller or {more}",
    )


def no_data_layout(engine: Engine, reasons: Sequence[str]) -> Problem:
    """Return the refusal of ranks that nobody has counted, neither the user nor the planner."""
    return Problem(
        f"engine {engine.name} is to have data ranks, and their number is not given",
        expected="layout: {data: N, tensor: M}, or a mixture of experts on known accelerators",
        found=f"layout auto; {'; '.join(reasons) or 'model or accelerators are not known'}",
        where=f"engines {engine.name}.layout",
        fix="write layout: {data: N, tensor: M}, or leave out executor: dp",
    )
