"""What the layout planner advises for one engine of a cluster, where its model could be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from vllm_ansible.accelerators.machines import Machines, Node, usual_fabric
from vllm_ansible.layouts.arguments import max_model_len
from vllm_ansible.layouts.candidate import Candidate, candidates, room
from vllm_ansible.layouts.choice import choose, why_not
from vllm_ansible.layouts.evaluate import Judge
from vllm_ansible.layouts.request import Request, check
from vllm_ansible.layouts.verdict import GIB, Verdict
from vllm_ansible.models.model import Model
from vllm_ansible.planner.engines import Engine
from vllm_ansible.planner.frozen import frozen
from vllm_ansible.planner.layout import Capacity, allowed, host_counts
from vllm_ansible.planner.problem import PlanError
from vllm_ansible.planner.sizes import Layout

CONCURRENCY = 64
TOLD = 3
HOPELESS = "no layout is expected to run"


@frozen
class Advice:
    """The layout of one engine, None for what it is without advice.

    `chosen` tells that the planner chose it, `arguments` what vLLM needs to be told with it.
    """

    layout: Layout | None
    chosen: bool = False
    reasons: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    estimate: Mapping[str, Any] = field(default_factory=dict)


def advise(
    engine: Engine,
    capacities: Sequence[Capacity],
    waiting: Sequence[Engine],
    models: Mapping[str, Model],
    measured: float | None = None,
) -> Advice:
    """Return the layout that one engine is to have on the devices that are free.

    waiting: the engines still to be placed, this one among them; each that leaves its layout to the
    planner gets the part of the devices that its weights are of all their weights. measured: bytes
    per second of bus bandwidth that an all-reduce over all hosts was seen to have.
    """
    nothing = Advice(engine.layout)
    there = _machines(engine, capacities, measured)
    model = models.get(engine.name)
    if there is None or model is None:
        return nothing
    try:
        judge = Judge(check(_request(engine, model, there)))
        if engine.layout is not None:
            return _asked(engine.layout, judge)
        return _chosen(engine, judge, _allowance(engine, capacities, waiting, models))
    except PlanError as error:
        return replace(nothing, reasons=(f"nothing is estimated: {error}",))


def _machines(
    engine: Engine, capacities: Sequence[Capacity], measured: float | None
) -> Machines | None:
    """Return the hosts this engine may use whose devices are known and alike, the most of them."""
    groups: dict[tuple[str, int], list[Node]] = {}
    for host in allowed(engine, capacities):
        if host.device is not None and host.free:
            key = (host.device.name, len(host.free))
            groups.setdefault(key, []).append(Node(host.host, host.device, len(host.free)))
    if not groups:
        return None
    nodes = max(groups.values(), key=lambda group: len(group) * group[0].devices)
    nodes = nodes[: engine.nodes] if engine.nodes else nodes
    fabric = usual_fabric(nodes)
    if measured:
        fabric = replace(fabric, measured=measured, assumed=False)
    return Machines(tuple(nodes), fabric)


def _request(engine: Engine, model: Model, there: Machines) -> Request:
    """Return the question that the engine's own arguments make more precise."""
    given = {str(key).replace("-", "_"): value for key, value in engine.vllm_args.items()}
    length = given.get("max_model_len")
    context = length if isinstance(length, int) and not isinstance(length, bool) else None
    longest = min(context or model.max_context, model.max_context)
    share = given.get("gpu_memory_utilization")
    seats = given.get("max_num_seqs")
    return Request(
        model=model,
        machines=there,
        concurrency=seats if isinstance(seats, int) and seats > 0 else CONCURRENCY,
        input_tokens=max(1, min(1024, longest // 2)),
        output_tokens=max(1, min(512, longest // 2)),
        context=context,
        eager=bool(given.get("enforce_eager")),
        utilization=float(share) if isinstance(share, int | float) else None,
        kv_cache_dtype=str(given.get("kv_cache_dtype") or "auto"),
        offload_gib=float(given.get("cpu_offload_gb") or 0),
    )


def _asked(layout: Layout, judge: Judge) -> Advice:
    """Return the estimate of a layout that the user chose; a doubt is told, and no more."""
    expert = layout.data > 1 and judge.facts.experts > 0
    verdict = judge.verdict(Candidate(layout.tensor, layout.pipeline, layout.data, expert))
    words = (
        f"the planner expects that it does not run: {verdict.refusal}"
        if verdict.refusal
        else _expected(verdict)
    )
    return Advice(layout, False, (words,), {}, estimate(verdict, judge.request))


def _chosen(engine: Engine, judge: Judge, allowance: int) -> Advice:
    """Return the best layout within the allowance, or else the smallest that runs at all."""
    there = judge.request.machines
    devices = there.nodes[0].devices
    able = [
        verdict
        for candidate in candidates(
            there, judge.facts.layers, judge.facts.experts if engine.executor == "dp" else 0
        )
        if _servable(candidate, engine, len(there.nodes), devices)
        for verdict in [judge.verdict(replace(candidate, replicas=1))]
    ]
    within = [one for one in able if one.candidate.ranks <= allowance]
    best = choose(within, judge.request)
    if best is None:
        smallest = sorted(able, key=lambda one: one.candidate.ranks)
        best = next((one for one in smallest if one.accepted), None)
    if best is None:
        return Advice(None, reasons=_hopeless(able))
    one = best.candidate
    length = max_model_len(best, judge.request)
    rest = sorted((other for other in within if other is not best), key=lambda v: -v.output_rate)
    reasons = [f"{one.name}: layout auto; {_expected(best)}"]
    reasons += [
        f"not {other.candidate.name}: {why_not(other, best, judge.request)}"
        for other in rest[:TOLD]
    ]
    more = room(one, len(there.nodes), devices) - 1
    if more > 0:
        reasons.append(f"{more} more such engine{'s' if more > 1 else ''} would fit beside it")
    return Advice(
        Layout(one.tensor, one.pipeline, one.data),
        True,
        tuple(reasons),
        {"max_model_len": length} if length else {},
        estimate(best, judge.request),
    )


def _servable(candidate: Candidate, engine: Engine, nodes: int, devices: int) -> bool:
    """Tell whether this project serves the split: even on hosts, data ranks for that executor."""
    if engine.executor == "dp":
        return candidate.data > 1 and candidate.tensor <= devices
    if candidate.data > 1 or candidate.expert:
        return False
    layout = Layout(candidate.tensor, candidate.pipeline)
    return any(
        count <= nodes and layout.world_size // count <= devices
        for count in host_counts(layout, engine.nodes)
    )


def _allowance(
    engine: Engine,
    capacities: Sequence[Capacity],
    waiting: Sequence[Engine],
    models: Mapping[str, Model],
) -> int:
    """Return how many devices an engine may take, so that those after it have theirs."""
    free = sum(len(host.free) for host in allowed(engine, capacities))
    free -= sum(one.layout.world_size for one in waiting if one.layout is not None)
    sizes = {
        one.name: models[one.name].bytes() if one.name in models else 0.0
        for one in waiting
        if one.layout is None
    }
    if len(sizes) <= 1:
        return free
    return max(1, int(free * sizes[engine.name] / sum(sizes.values())))


def _expected(verdict: Verdict) -> str:
    load, held = verdict.load, verdict.budget
    if load is None or held is None:
        return "nothing is known of its speed"
    return (
        f"{verdict.rank_bytes / GIB:.1f} GiB of weights a rank, {held.kv_tokens[1]:,} KV tokens "
        f"({held.kv_tokens[0]:,} to {held.kv_tokens[2]:,}) and {load.output_rate.middle:,.0f} "
        f"tokens/s ({load.output_rate.low:,.0f} to {load.output_rate.high:,.0f}) at "
        f"{load.concurrency:.0f} requests are expected"
    )


def _hopeless(able: Sequence[Verdict]) -> tuple[str, ...]:
    """Return why no layout of the free devices is expected to run."""
    if not able:
        return ()
    nearest = max(able, key=lambda one: (one.budget is not None, one.candidate.ranks))
    return (f"{HOPELESS}; {nearest.candidate.name}: {nearest.refusal}",)


def estimate(verdict: Verdict, request: Request) -> dict[str, Any]:
    """Return what the kept plan holds of an estimate: bytes by stage, tokens, tokens a second."""
    held, load = verdict.budget, verdict.load
    if held is None or load is None:
        return {}
    node = request.machines.nodes[0]
    return {
        "accelerator": node.accelerator.name,
        "stages": [
            {
                "memory_bytes": node.accelerator.memory_bytes,
                "weights_bytes": round(stage.weights),
                "overhead_bytes": [
                    round(size)
                    for size in (stage.overhead.low, stage.overhead.mid, stage.overhead.high)
                ],
                "kv_bytes": [
                    round(size)
                    for size in (stage.kv_bytes.low, stage.kv_bytes.mid, stage.kv_bytes.high)
                ],
            }
            for stage in held.stages
        ],
        "kv_tokens": list(held.kv_tokens),
        "concurrency": load.concurrency,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "output_tokens_per_second": [
            round(rate, 1)
            for rate in (load.output_rate.low, load.output_rate.middle, load.output_rate.high)
        ],
    }
