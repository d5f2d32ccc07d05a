"""What the layout planner advises for one engine of a cluster, where its model could be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from vllm_ansible.accelerators.machines import Machines, Node, usual_fabric
from vllm_ansible.accelerators.platform import AUTO, has_devices
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.estimate.architectures.drafts import with_drafts
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.towers import with_tower
from vllm_ansible.plan.estimate.layouts.arguments import max_model_len
from vllm_ansible.plan.estimate.layouts.choice import why_not
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.request import Request, check
from vllm_ansible.plan.estimate.layouts.single import best_of, data_ranks, devices_of, more
from vllm_ansible.plan.estimate.layouts.verdict import GIB, Verdict
from vllm_ansible.plan.estimate.memory.kernels import HOPPER
from vllm_ansible.plan.layout import Capacity, allowed
from vllm_ansible.plan.model_arguments import (
    EXPERTS,
    asked_length,
    asked_number,
    given_arguments,
    keeps_prefixes,
    lora_slots,
    proposing,
    tower_options,
    unknown_size,
)
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.plan.splits import candidate_of, served
from vllm_ansible.plan.unfit import (
    cannot_run,
    far_slower,
    nothing_runs,
    refuse_length,
    surely_not,
)
from vllm_ansible.problem import PlanError, Problem

CONCURRENCY = 64
# Tiny models, of random numbers: that they fit is known before they are made.
MADE = "random"
TOLD = 3


@frozen
class Terms:
    """What is known beside the devices, and how strict a plan is to be.

    `models` are those whose configuration could be read, `unread` says of the others why not, both
    by engine. `measured` is bytes per second of bus bandwidth over all hosts. `settled`: nothing
    more will be known, and an engine that leaves its layout to the planner needs a plan.
    """

    models: Mapping[str, Model] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    measured: float | None = None
    settled: bool = False
    allow_unfit: bool = False
    # Whether an entry that serves gets further engines on devices that are idle.
    fill: bool = False


@frozen
class Advice:
    """The layout of one engine, None for what it is without advice.

    `chosen` tells that the planner chose it, `arguments` what vLLM needs to be told with it.
    `unchecked` is why nobody knows whether it fits.
    """

    layout: Layout | None
    chosen: bool = False
    reasons: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    estimate: Mapping[str, Any] = field(default_factory=dict)
    unchecked: str = ""
    warnings: tuple[str, ...] = ()


def advise(
    engine: Engine,
    capacities: Sequence[Capacity],
    waiting: Sequence[Engine],
    terms: Terms,
    alone: bool = False,
) -> Advice:
    """Return the layout that one engine is to have on the devices that are free.

    waiting: the engines still to be placed, this one among them; each that leaves its layout to the
    planner gets the part of the devices that its weights are of all their weights. alone: it is the
    only one of its list. Raises PlanError for what cannot run.
    """
    if _on_processors(engine, capacities) or (engine.model_source == MADE and not terms.settled):
        return Advice(engine.layout)
    there = _machines(engine, capacities, terms.measured)
    model = terms.models.get(engine.name)
    if model is not None:
        refuse_length(engine, model)
    if there is None or model is None:
        return _unchecked(engine, _unknown(engine, capacities, there, terms), terms)
    if why := unknown_size(engine, model):
        return _unchecked(engine, why, terms)
    try:
        judge = Judge(check(asked_of(engine, model, there)))
    except PlanError as error:
        return _unchecked(engine, f"nothing is estimated: {error}", terms)
    if engine.layout is not None:
        advice = _asked(engine, engine.layout, judge, terms.allow_unfit)
    else:
        most = _allowance(engine, capacities, waiting, terms.models)
        advice = _chosen(engine, judge, most, alone)
        advice = replace(advice, reasons=(*advice.reasons, *_beside(engine, capacities, there)))
    told = (*drafts_beside(engine, model), *compiled_experts(engine, advice.layout, judge))
    return replace(advice, warnings=(*advice.warnings, *told))


def compiled_experts(engine: Engine, layout: Layout | None, judge: Judge) -> tuple[str, ...]:
    """Return a sentence where the first start compiles for longer than anybody expects.

    `fused_moe/oracle/fp8.py` of vLLM 0.32: on Hopper FlashInfer's CUTLASS kernels for experts in
    FP8 by blocks that ranks share out, Triton's where each rank has a part of every expert.
    """
    given, request = given_arguments(engine), judge.request
    if layout is None or layout.tensor * layout.data < 2 or _kernels_given(given):
        return ()
    one = candidate_of(layout, judge.facts.experts > 0, bool(given.get(EXPERTS)))
    hoppers = {
        node.accelerator.name
        for node in request.machines.nodes
        if node.accelerator.capability == HOPPER
    }
    if not (one.expert and hoppers and request.model.quantization == "fp8 per block"):
        return ()
    return (
        f"engine {engine.name}: its experts in FP8 by blocks are shared out among ranks, for "
        f"which vLLM 0.32 compiles FlashInfer's kernels on {', '.join(sorted(hoppers))} at the "
        "first start: about 20 minutes with 32 cores, more with fewer; "
        "vllm_args: {moe_backend: triton} does without",
    )


def _kernels_given(given: Mapping[str, Any]) -> bool:
    """Tell whether the user says which kernels multiply experts."""
    kernels = given.get("kernel_config")
    inside = kernels.get("moe_backend") if isinstance(kernels, Mapping) else kernels
    return bool(given.get("moe_backend") or inside)


def drafts_beside(engine: Engine, model: Model) -> tuple[str, ...]:
    """Return a sentence where tokens are proposed by what is not counted."""
    _, beside = proposing(engine, model)
    return (f"engine {engine.name}: {beside}",) if beside else ()


def _on_processors(engine: Engine, capacities: Sequence[Capacity]) -> bool:
    """Tell whether an engine runs where nobody plans memory."""
    return not any(has_devices(host.accelerator) for host in allowed(engine, capacities))


def _unknown(
    engine: Engine, capacities: Sequence[Capacity], there: Machines | None, terms: Terms
) -> str:
    """Return what nobody knows."""
    if there is None:
        kinds = {host.accelerator for host in allowed(engine, capacities)} - {AUTO}
        kinds = set(filter(has_devices, kinds))
        which = f" ({', '.join(sorted(kinds))})" if kinds else ""
        return f"the hosts' accelerators{which} are not known"
    why = terms.unread.get(engine.name)
    return f"its config.json cannot be read: {why}" if why else "its config.json was not read"


def _unchecked(engine: Engine, why: str, terms: Terms) -> Advice:
    """Return no advice, or refuse where an engine has no layout without it."""
    if engine.layout is None and terms.settled:
        raise PlanError(
            Problem(
                f"engine {engine.name} has layout: auto, and nothing can be planned: {why}",
                expected="a config.json of the model and accelerators that are known",
                found=why,
                where=f"engines {engine.name}.layout",
                fix="write layout: {tensor: N, pipeline: M}; or make both known: accelerator_model "
                "of hosts that were not looked at, and a config.json in reach",
            )
        )
    return Advice(engine.layout, unchecked=why)


def _beside(engine: Engine, capacities: Sequence[Capacity], there: Machines) -> list[str]:
    """Return what to do about hosts that differ from those of an engine, nothing without any."""
    if engine.nodes:
        return []
    nodes = [
        Node(host.host, host.device, len(host.free))
        for host in allowed(engine, capacities)
        if host.device is not None and host.free
    ]
    used = {node.name for node in there.nodes}
    left = [node.name for node in nodes if node.name not in used]
    if not left:
        return []
    line = Machines(tuple(nodes), there.fabric).line()
    return [
        f"one engine has equal hosts, which {', '.join(left)} {'is' if len(left) == 1 else 'are'} "
        f'not: vllm-ansible plan {engine.model} "{line}" lists engines for all of them'
    ]


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


def asked_of(engine: Engine, model: Model, there: Machines) -> Request:
    """Return the question that the engine's own arguments make more precise."""
    given = given_arguments(engine)
    context = asked_length(engine)
    if context and context > model.max_context:
        # Positions are scaled, or the user insists.
        model = replace(model, max_context=context)
    longest = min(context or model.max_context, model.max_context)
    # A cache of a given size is taken whatever the share.
    share = 1.0 if _cache_given(engine) else asked_number(engine, "gpu_memory_utilization")
    seats = int(asked_number(engine, "max_num_seqs") or 0)
    text_only, encoder_data = tower_options(engine)
    speculative, _ = proposing(engine, model)
    held = with_drafts(model, speculative) if speculative else model
    return Request(
        model=with_tower(held, text_only=text_only, encoder_data=encoder_data),
        machines=there,
        concurrency=seats if seats > 0 else CONCURRENCY,
        input_tokens=max(1, min(1024, longest // 2)),
        output_tokens=max(1, min(512, longest // 2)),
        context=context,
        eager=bool(given.get("enforce_eager")),
        utilization=share,
        kv_cache_dtype=str(given.get("kv_cache_dtype") or "auto"),
        offload_gib=asked_number(engine, "cpu_offload_gb") or 0.0,
        batched_tokens=asked_length(engine, "max_num_batched_tokens"),
        text_only=text_only,
        encoder_data=encoder_data,
        prefix_caching=keeps_prefixes(engine),
        lora=lora_slots(engine),
        speculative=speculative,
        whole_experts=None if (decided := given.get(EXPERTS)) is None else bool(decided),
    )


def _cache_given(engine: Engine) -> bool:
    """Tell whether the user says how large the cache is."""
    given = given_arguments(engine)
    return any(given.get(name) for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override"))


def _kept(engine: Engine, verdict: Verdict, judge: Judge) -> dict[str, Any]:
    """Return the estimate as it is kept; of a cache whose size was given nothing is expected."""
    found = estimate(verdict, judge.request)
    if found and not judge.request.eager:
        found |= _eager(verdict, judge.request)
    return {**found, "kv_tokens": []} if found and _cache_given(engine) else found


def _eager(verdict: Verdict, request: Request) -> dict[str, Any]:
    """Return what is expected of the same engine without graphs, as the ladder's last rung."""
    rates = Judge(replace(request, eager=True)).verdict(verdict.candidate).rates
    return {
        "eager_tokens_per_second": [round(one, 1) for one in (rates.low, rates.middle, rates.high)]
    }


def _asked(engine: Engine, layout: Layout, judge: Judge, allow_unfit: bool) -> Advice:
    """Return the estimate of a layout that the user chose; one that cannot run is refused.

    A doubt within the band is told, and no more.
    """
    whole = bool(given_arguments(engine).get(EXPERTS))
    verdict = judge.verdict(candidate_of(layout, judge.facts.experts > 0, whole))
    if verdict.refusal:
        doubt = f"the planner expects that it does not run: {verdict.refusal}"
        if surely_not(verdict, judge.request) and not allow_unfit:
            raise PlanError(cannot_run(engine, layout, verdict, judge))
        warning = f"engine {engine.name} with {layout.name}: {doubt}"
        return Advice(layout, False, (doubt,), warnings=(warning,))
    slow = far_slower(engine, layout, verdict, judge)
    assumed = judge.request.machines.nodes[0].accelerator.assumed
    words = (_expected(verdict, judge.request), *slow, *assumed)
    told = tuple(f"engine {engine.name}: {one}" for one in slow)
    return Advice(layout, False, words, {}, _kept(engine, verdict, judge), warnings=told)


def _chosen(engine: Engine, judge: Judge, allowance: int, alone: bool) -> Advice:
    """Return the best layout within the allowance, or else the smallest that runs at all.

    It is chosen as `vllm-ansible plan` chooses. alone: no other engine is to have devices, so that
    this one may have data ranks.
    """
    there = judge.request.machines
    data = engine.executor == "dp" or (alone and not engine.executor_given)
    able = served(engine, judge, data, whole=True)
    within = [one for one in able if devices_of(one.candidate) <= allowance]
    best = best_of(within, judge, data)
    if best is None:
        smallest = sorted(able, key=lambda one: devices_of(one.candidate))
        best = next((one for one in smallest if one.accepted), None)
    if best is None:
        if engine.executor == "dp" and not able:
            return Advice(None)
        raise PlanError(nothing_runs(engine, able, judge))
    one = best.candidate
    rest = sorted((other for other in within if other is not best), key=lambda v: -v.output_rate)
    reasons = [
        f"not {other.candidate.name}: {why_not(other, best, judge.request)}"
        for other in rest[:TOLD]
    ]
    others = more(one, there)
    if others > 0:
        reasons.append(f"{others} more such engine{'s' if others > 1 else ''} would fit beside it")
    return advice_of(engine, best, judge, max_model_len(best, judge.request), reasons)


def advice_of(
    engine: Engine, best: Verdict, judge: Judge, length: int | None, reasons: Sequence[str]
) -> Advice:
    """Return the advice that a verdict of the planner's own choice is."""
    one = best.candidate
    assumed = judge.request.machines.nodes[0].accelerator.assumed
    return Advice(
        Layout(one.tensor, one.pipeline, data_ranks(one)),
        True,
        (f"{one.name}: layout auto; {_expected(best, judge.request)}", *reasons, *assumed),
        {
            **({"max_model_len": length} if length else {}),
            # Data ranks have it by themselves.
            **({EXPERTS: True} if one.expert and one.data == 1 else {}),
        },
        _kept(engine, best, judge),
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


def _expected(verdict: Verdict, request: Request) -> str:
    load, held = verdict.load, verdict.budget
    if load is None or held is None:
        return "nothing is known of its speed"
    rate = verdict.rates
    method = request.model.on_load
    how = f" (estimated as {method} holds them on load)" if method else ""
    return (
        f"{verdict.rank_bytes / GIB:.1f} GiB of weights a rank{how}, "
        f"{held.kv_tokens[1]:,} KV tokens ({held.kv_tokens[0]:,} to {held.kv_tokens[2]:,}) and "
        f"{rate.middle:,.0f} tokens/s ({rate.low:,.0f} to {rate.high:,.0f}) at "
        f"{verdict.requests:.0f} requests are expected"
    )


def estimate(verdict: Verdict, request: Request) -> dict[str, Any]:
    """Return what the kept plan holds of an estimate: bytes by stage, tokens, tokens a second."""
    held, load = verdict.budget, verdict.load
    if held is None or load is None:
        return {}
    node, rates = request.machines.nodes[0], verdict.rates
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
        "concurrency": verdict.requests,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "output_tokens_per_second": [
            round(rate, 1) for rate in (rates.low, rates.middle, rates.high)
        ],
        "last_first_token_seconds": round(load.last_first_token(request.input_tokens), 4),
    }
