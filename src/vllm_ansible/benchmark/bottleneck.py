"""What limits an engine at the end of a ramp, named from what was sampled meanwhile.

A request's mean time, as the client saw it, has parts that the engine's own clock knows: waiting,
prefill and decode. What is left was spent in the API server, on the network and in the client. The
part says which side limits, samples of sockets and processors say which piece of that side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

SEATS, CACHE, PREFILL, DECODE = "seats", "KV cache", "prefill", "decode"
FRONT_END, GENERATOR, NETWORK = "API server", "load generator", "network"
NOT_REACHED, UNKNOWN = "not reached", "unknown"
# Below this part of a request's time, a piece is not looked at: halving it would bring a tenth,
# which is what a step has to bring (GAIN of the ramp).
LEAST_PART = 0.2
# Seats, or the cache, are full in at least every second sample, in which requests wait.
MOST_SAMPLES = 0.5
# Of one thread, which ran or waited for a processor for so much of the time: 63 % on a busy
# machine, 98 % of one that three others leave no processor (docs/soak.md).
BUSY = 0.8
# Of an interface's nominal rate: beyond it queues grow without bound (Ethernet's framing is 5 %).
FULL_LINK = 0.9
# Of connections with bytes that were sent and are not acknowledged, on average over samples: 6 % on
# a link with room for half as much again, 100 % on one with room for half (docs/soak.md).
UNSENT = 0.4
# A client that sends later than this at a given rate does not make that rate.
LATE = 0.05
# Requests that were preempted do their prefill again.
PREEMPTED_SHARE = 0.1
# A cache that is full has room for one request more or fewer from step to step.
SLACK = 0.25
# Half of the engine's time for prompts alone.
PREFILL_SHARE = 0.5
# Two candidates within this ratio are not told apart: rounds differ by a fifth on a shared machine.
APART = 1.5
FIXES = {
    SEATS: "raise max_num_seqs of the engine, if its KV cache has room",
    CACHE: "raise gpu_memory_utilization or kv_cache_memory_bytes, take an FP8 cache "
    "(kv_cache_dtype), or lower max_model_len",
    PREFILL: "more ranks of tensor parallelism or a second engine; prefix caching where prompts "
    "share their beginning",
    DECODE: "more or faster accelerators, or a smaller type of weights",
    FRONT_END: "more API servers (api_server_count), or more and faster CPU cores on that host",
    GENERATOR: "run the load from a host of its own (group load), or from a faster one: these "
    "figures are the generator's",
    NETWORK: "measure from a host nearer to the engine, or over a faster link",
}


@dataclass(frozen=True)
class Candidate:
    """Something that may limit: how much of a request's time it explains, and why it is named."""

    name: str
    strength: float
    why: str


def bottleneck(
    figures: Mapping[str, float],
    step: float,
    knee: float,
    prompts_share: float | None,
    least: float = 1,
    users: bool = True,
) -> dict[str, Any]:
    """Return what limits at the last step, or the two candidates that the evidence leaves.

    figures are the medians of that step, knee where the ramp has its own, least its first step.
    prompts_share is how much of the engine's time prompts alone would take. users: a step is a
    number of them.
    """
    parts = parts_of(figures)
    if parts is None:
        return _unknown(step, "the engine's counters or the client's times are not known")
    evidence = _evidence(figures, parts, step, users)
    # At how many requests at a time throughput ceases to grow is seen by fewer users alone.
    known = users and (least < knee or knee == 1)
    found = [
        *_delivery(figures, parts),
        *_waiting(figures, parts, knee if known else None),
    ]
    computes = _compute(parts, prompts_share)
    waits = {one.name for one in found} & {SEATS, CACHE}
    if knee < step and not waits:
        found.append(computes)
    elif SEATS in waits and not known:
        found.append(replace(computes, strength=parts["queue"]))
    found.sort(key=lambda one: -one.strength)
    if not found and least == step:
        return _unknown(step, "one step does not say whether more load would bring more", evidence)
    if not found:
        return {
            "name": NOT_REACHED,
            "certain": True,
            "candidates": [],
            "why": "the last step still brought a tenth more tokens a second, and nothing was full",
            "fix": "measure with more load",
            "evidence": evidence,
            "step": step,
        }
    named = [found[0], *(one for one in found[1:] if one.strength * APART >= found[0].strength)][:2]
    if named == [computes] and parts["delivery"] >= max(
        LEAST_PART, parts["prefill"] + parts["decode"]
    ):
        named.append(_likeliest(figures, parts))
    return {
        "name": named[0].name,
        "certain": len(named) == 1,
        "candidates": [one.name for one in named],
        "why": "; ".join(one.why for one in named),
        "fix": "; or ".join(FIXES[one.name] for one in named),
        "evidence": evidence,
        "step": step,
    }


def parts_of(figures: Mapping[str, float]) -> dict[str, float] | None:
    """Return the parts of a request's mean time; None where one of the clocks is not known."""
    whole, engine = figures.get("e2e_ms_mean"), figures.get("engine_e2e_ms_mean")
    inner = [figures.get(f"{name}_ms_mean") for name in ("queue", "prefill", "decode")]
    if not whole or engine is None or any(one is None for one in inner):
        return None
    queue, prefill, decode = (float(one or 0) / whole for one in inner)
    outside = max(0.0, 1 - engine / whole)
    front = max(0.0, engine / whole - queue - prefill - decode)
    return {
        "queue": queue,
        "prefill": prefill,
        "decode": decode,
        "front": front,
        "outside": outside,
        "delivery": outside + front,
    }


def _delivery(figures: Mapping[str, float], parts: Mapping[str, float]) -> list[Candidate]:
    """Return what may limit outside of the engine's steps: client, network, API server."""
    found = []
    late = figures.get("send_lag_share") or 0.0
    busy = figures.get("client_busy") or 0.0
    if late > LATE:
        why = f"requests were sent {percent(late)} later than asked"
        found.append(Candidate(GENERATOR, max(parts["delivery"], late), why))
    if parts["delivery"] < LEAST_PART:
        return found
    if busy >= BUSY and late <= LATE:
        why = f"the client's thread ran or waited for a processor {percent(busy)} of the time"
        found.append(Candidate(GENERATOR, parts["delivery"] * busy, why))
    front = figures.get("front_end_busy") or 0.0
    if front >= BUSY:
        why = f"the API server's thread ran or waited for a processor {percent(front)} of the time"
        found.append(Candidate(FRONT_END, parts["delivery"] * front, why))
    unsent, used = (
        figures.get("server_unsent_share") or 0.0,
        figures.get("network_used_share") or 0.0,
    )
    if unsent >= UNSENT or used >= FULL_LINK:
        why = f"{percent(unsent)} of the connections had answers that were not acknowledged"
        if used >= FULL_LINK:
            why = f"an interface carried {percent(used)} of its nominal rate"
        found.append(Candidate(NETWORK, parts["delivery"], why))
    return found


def _waiting(
    figures: Mapping[str, float], parts: Mapping[str, float], knee: float | None
) -> list[Candidate]:
    """Return what requests wait for in the engine: seats or cache.

    knee is None where nobody knows at how many requests at a time throughput ceased to grow. Where
    it did before seats or cache were taken, the engine computes as fast as it can.
    """
    preempted = (figures.get("preemptions") or 0.0) / max(figures.get("requests") or 1.0, 1.0)
    most, mean = figures.get("running_most") or 0.0, figures.get("running_mean") or 0.0
    full, seats = figures.get("cache_full_share") or 0.0, figures.get("seats") or 0.0
    if preempted >= PREEMPTED_SHARE:
        why = f"{percent(preempted)} of the requests were preempted"
        return [Candidate(CACHE, max(parts["queue"], preempted, LEAST_PART), why)]
    if parts["queue"] < LEAST_PART:
        return []
    taken = most >= seats if seats else full < MOST_SAMPLES
    if not taken and (full >= MOST_SAMPLES or _no_room(figures)):
        if knee is not None and knee * (1 + SLACK) < mean:
            return []
        usage = figures.get("cache_usage_most") or 0.0
        why = f"requests waited with {most:.0f} running and {percent(usage)} of the cache in use"
        return [Candidate(CACHE, parts["queue"], why)]
    held = taken and (figures.get("seats_full_share") or 0.0) >= MOST_SAMPLES
    if not held or (knee is not None and knee < most):
        return []
    of = f" of {seats:.0f}" if seats else ""
    return [
        Candidate(SEATS, parts["queue"], f"requests waited while {most:.0f}{of} seats were taken")
    ]


def _no_room(figures: Mapping[str, float]) -> bool:
    """Tell whether what was free of the cache is less than one more request needs."""
    tokens, usage = figures.get("cache_tokens") or 0.0, figures.get("cache_usage_most") or 0.0
    needed = (figures.get("input_tokens") or 0.0) + (figures.get("output_tokens") or 0.0)
    return bool(tokens) and (1 - usage) * tokens < needed


def _compute(parts: Mapping[str, float], prompts_share: float | None) -> Candidate:
    """Return what computes: all that a request spends in the engine is due to it."""
    inner = parts["prefill"] + parts["decode"]
    if prompts_share is None:
        # Without prompts alone: the parts of a request, whose decode is held up by others' prefill.
        prompts_share = parts["prefill"] / inner if inner else 0.0
    name = PREFILL if prompts_share >= PREFILL_SHARE else DECODE
    why = (
        "more load brought less than a tenth more tokens a second; "
        f"prompts take {percent(prompts_share)} of the engine's time"
    )
    return Candidate(name, inner + parts["queue"], why)


def _likeliest(figures: Mapping[str, float], parts: Mapping[str, float]) -> Candidate:
    """Return what comes nearest to its limit outside of the engine."""
    near = {
        GENERATOR: (figures.get("client_busy") or 0.0) / BUSY,
        FRONT_END: (figures.get("front_end_busy") or 0.0) / BUSY,
        NETWORK: (figures.get("server_unsent_share") or 0.0) / UNSENT,
    }
    name = max(near, key=lambda one: near[one])
    why = f"{percent(parts['delivery'])} of a request's time was spent outside of the engine"
    return Candidate(name, parts["delivery"], why)


def percent(part: float) -> str:
    """Return a part of one as people read it."""
    return f"{100 * part:.0f} %"


def _unknown(step: float, why: str, evidence: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "name": UNKNOWN,
        "certain": False,
        "candidates": [],
        "why": why,
        "fix": "",
        "evidence": list(evidence),
        "step": step,
    }


def _evidence(
    figures: Mapping[str, float], parts: Mapping[str, float], step: float, users: bool
) -> list[str]:
    """Return the figures that decide, as sentences."""
    shown = {
        "waiting in the engine": parts["queue"],
        "prefill": parts["prefill"],
        "decode": parts["decode"],
        "API server": parts["front"],
        "network and client": parts["outside"],
    }
    times = ", ".join(f"{name} {percent(part)}" for name, part in shown.items())
    load = f"{step:g} {'users' if users else 'requests/s'}"
    found = [f"at {load} a request took {figures['e2e_ms_mean']:,.0f} ms: {times}"]
    known: Callable[[str], Any] = figures.get
    if known("running_most") is not None:
        seats = f" of {known('seats'):.0f} seats" if known("seats") else ""
        found.append(
            f"at most {known('running_most'):.0f}{seats} running, "
            f"{known('waiting_mean') or 0:.1f} waiting in the mean, "
            f"{percent(known('cache_usage_most') or 0)} of the KV cache in use at most, "
            f"{known('preemptions') or 0:.0f} preemptions"
        )
    for name, key in (("API server", "front_end_busy"), ("client", "client_busy")):
        if known(key) is not None:
            busy = percent(known(key))
            found.append(f"the {name}'s thread ran or waited for a processor {busy} of the time")
    if known("server_unsent_share") is not None:
        found.append(
            f"connections with answers not acknowledged: {percent(known('server_unsent_share'))}"
        )
    return found
