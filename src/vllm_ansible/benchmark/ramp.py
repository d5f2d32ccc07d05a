"""What a ramp has found: figures by users, the knee, goodput, cost, and what was planned."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from vllm_ansible.benchmark import cost
from vllm_ansible.node.engine import ramp as points_of
from vllm_ansible.node.engine.ramp import LOAD, PREFILL
from vllm_ansible.plan.servers import servers

VERSION = 1
LATENCIES = tuple(points_of.LATENCIES.values())
PERCENTILES = points_of.PERCENTILES
KPIS = (
    "requests_per_second",
    "input_tokens_per_second",
    "output_tokens_per_second",
    "output_tokens_per_second_per_user",
    "output_tokens_per_second_per_rank",
    "good_requests_per_second",
    *(f"{name}_p{percentile}" for name in LATENCIES for percentile in PERCENTILES),
    *(f"{name}_ms_mean" for name in points_of.PHASES),
    "preemptions",
    "prefix_cache_hit_share",
    "other_requests",
)
# Users are within the objectives where so many of their requests are.
GOOD_SHARE = 0.9
COLUMNS = (
    *("engine", "model", "kind", "users", "round", "requests", "failed", "error"),
    *("input_tokens", "output_tokens", "duration_seconds", "tokens_in", "tokens_out"),
    *KPIS,
    *("usd_per_hour", "usd_per_million_tokens", "usd_per_million_output_tokens_alone"),
    "measured_at",
)


def found(
    document: Mapping[str, Any], engine: Mapping[str, Any], price: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all that is reported of a ramp, from its kept points.

    engine is its part of the plan, price what `engine_price` says of it.
    """
    ramp = document["fingerprint"]["ramp"]
    ranks = max(len(engine.get("ranks") or ()), 1)
    data, alone = len(servers(engine)), ""
    if data > 1 and "router" not in document["fingerprint"]:
        # One of its servers was measured: it has its part of the devices, and of their price.
        ranks, alone = ranks // data, f"rank 0 of {data} data ranks alone"
        price = {**price, "data_ranks": data}
        if price.get("usd_per_hour"):
            price["usd_per_hour"] /= data
    points = document["points"]
    users = [
        _step(number, [one for one in points if _is(one, LOAD, number)], ranks, price)
        for number in sorted({one["concurrency"] for one in points if one["kind"] == LOAD})
    ]
    knee = points_of.knee(points)
    prompts = [one for one in points if _is(one, PREFILL, knee)]
    prefill = _step(knee, prompts, ranks, {}) if prompts else None
    times = sorted(one["figures"]["measured_at"] for one in points)
    return {
        "version": VERSION,
        "engine": document["engine"],
        "model": document["model"],
        "host": engine["hosts"][0],
        "router": document["fingerprint"].get("router"),
        "plan": document["fingerprint"]["plan"],
        "instance": document["fingerprint"]["instance"],
        "ranks": ranks,
        "alone": alone,
        "load": {name: ramp[name] for name in ("input_tokens", "output_tokens", "rounds")},
        "measured": [times[0], times[-1]] if times else [],
        "users": users,
        "prompts_alone": prefill,
        "knee": knee,
        "goodput": _goodput(users, ramp["slo"]),
        "price": dict(price),
        "cost": _cost(users, knee, prefill, price),
        "planned": _planned({} if alone else engine.get("estimate") or {}, ramp, users),
        "command": points[0]["command"] if points else "",
    }


def _is(point: Mapping[str, Any], kind: str, users: int) -> bool:
    return bool(point["kind"] == kind and point["concurrency"] == users)


def _step(
    users: int, points: Sequence[Mapping[str, Any]], ranks: int, price: Mapping[str, Any]
) -> dict[str, Any]:
    """Return one number of users: each round, the median and the range of those without failure."""
    rounds = [{"round": one["round"], **_derived(one["figures"], users, ranks)} for one in points]
    good = [one for one in rounds if not one["failed"]]
    figures = {}
    for name in KPIS:
        values = [float(one[name]) for one in good if one.get(name) is not None]
        if values:
            figures[name] = {"median": median(values), "least": min(values), "most": max(values)}
    step: dict[str, Any] = {
        "users": users,
        "requests": sum(one["requests"] for one in rounds),
        "failed": sum(one["failed"] for one in rounds),
        "error": next((one["error"] for one in rounds if one["error"]), ""),
        "figures": figures,
        "rounds": rounds,
    }
    if figures and price.get("usd_per_hour"):
        step["cost"] = cost.per_million(price["usd_per_hour"], medians(step))
    return step


def _derived(figures: Mapping[str, Any], users: int, ranks: int) -> dict[str, Any]:
    rate = figures["output_tokens_per_second"]
    return {
        **figures,
        "output_tokens_per_second_per_user": rate / users,
        "output_tokens_per_second_per_rank": rate / ranks,
    }


def medians(step: Mapping[str, Any]) -> dict[str, float]:
    """Return the medians of one number of users by name."""
    return {name: float(one["median"]) for name, one in step["figures"].items()}


def at(result: Mapping[str, Any], users: int) -> Mapping[str, Any]:
    """Return what was found at so many users."""
    return next((one for one in result["users"] if one["users"] == users), {})


def _goodput(users: Sequence[Mapping[str, Any]], slo: Mapping[str, float]) -> dict[str, Any] | None:
    """Return how many users are within the stated objectives; None where none is stated."""
    stated = {name: limit for name, limit in slo.items() if limit}
    if not stated:
        return None
    rates = []
    for step in users:
        figures = medians(step)
        if "good_requests_per_second" in figures:
            good, every = figures["good_requests_per_second"], figures["requests_per_second"]
            rates.append((step["users"], good, good / every if every else 0.0))
    within = [number for number, _, share in rates if share >= GOOD_SHARE]
    best = max(rates, key=lambda one: one[1], default=(0, 0.0, 0.0))
    return {
        "slo": stated,
        "share": GOOD_SHARE,
        "users_within": max(within, default=0),
        "most_good_requests_per_second": best[1],
        "most_good_at": best[0] if best[1] else 0,
        "shares": {str(number): share for number, _, share in rates},
    }


def _cost(
    users: Sequence[Mapping[str, Any]],
    knee: int,
    prefill: Mapping[str, Any] | None,
    price: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return what tokens cost at the knee; None where no price is known."""
    hourly = price.get("usd_per_hour")
    step = next((one for one in users if one["users"] == knee), None)
    if not hourly or step is None:
        return None
    found = {"users": knee, "usd_per_hour": hourly, **step["cost"]}
    if prefill is not None:
        found |= cost.split(hourly, medians(step), medians(prefill))
    return found


def _planned(
    estimate: Mapping[str, Any], ramp: Mapping[str, Any], users: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the planner's rate, and the measured one where the load is the same."""
    rates = estimate.get("output_tokens_per_second")
    if not rates:
        return None
    number = round(estimate["concurrency"])
    same = all(round(estimate[name]) == ramp[name] for name in ("input_tokens", "output_tokens"))
    step = next((one for one in users if one["users"] == number and one["figures"]), None)
    measured = medians(step)["output_tokens_per_second"] if same and step else None
    return {
        "users": number,
        "input_tokens": round(estimate["input_tokens"]),
        "output_tokens": round(estimate["output_tokens"]),
        "output_tokens_per_second": list(rates),
        "same_load": same,
        "measured_output_tokens_per_second": measured,
        "inside": None if measured is None else rates[0] <= measured <= rates[2],
    }


def line(result: Mapping[str, Any]) -> str:
    """Return one line about a ramp."""
    figures = medians(at(result, result["knee"]))
    alone = f", {result['alone']}" if result["alone"] else ""
    words = [
        f"{result['engine']}{alone}: knee at {result['knee']} users, "
        f"{figures['output_tokens_per_second']:,.1f} tokens/s out, TTFT p90 "
        f"{figures['ttft_ms_p90']:,.0f} ms, ITL p90 {figures['itl_ms_p90']:,.1f} ms"
    ]
    if planned := result["planned"]:
        low, middle, high = planned["output_tokens_per_second"]
        measured = planned["measured_output_tokens_per_second"]
        beside = f"{measured:,.0f} measured" if measured is not None else "not measured"
        words.append(
            f"planned {middle:,.0f} ({low:,.0f} to {high:,.0f}) at {planned['users']}, {beside}"
        )
    if goodput := result["goodput"]:
        words.append(f"{goodput['users_within']} users within the objectives")
    words.append(_cost_words(result))
    if failed := [one["users"] for one in result["users"] if one["failed"]]:
        words.append(f"requests failed at {', '.join(map(str, failed))} users")
    return "; ".join(words)


def _cost_words(result: Mapping[str, Any]) -> str:
    found = result["cost"]
    if not found:
        return f"no cost: {result['price'].get('why', 'no price is known')}"
    told = found.get("usd_per_million_input_tokens")
    if told is None:
        return f"{dollars(found['usd_per_million_tokens'])} for a million tokens, in or out"
    return (
        f"{dollars(told)} for a million tokens in and "
        f"{dollars(found['usd_per_million_output_tokens'])} out at "
        f"${found['usd_per_hour']:,.2f}/h"
    )


def dollars(amount: float) -> str:
    """Return an amount of dollars with as many digits as say something."""
    return f"${amount:,.2f}" if amount >= 10 else f"${amount:,.3g}"


def as_csv(result: Mapping[str, Any]) -> str:
    """Return a row for each round of each number of users, and of the prompts alone."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    hourly = result["price"].get("usd_per_hour")
    steps = [(LOAD, one) for one in result["users"]]
    if result["prompts_alone"]:
        steps.append((PREFILL, result["prompts_alone"]))
    for kind, step in steps:
        for one in step["rounds"]:
            spent = cost.per_million(hourly, one) if hourly and one["tokens_out"] else {}
            of_all = {name: result[name] for name in ("engine", "model")}
            of_all |= {"kind": kind, "users": step["users"], "usd_per_hour": hourly}
            writer.writerow({**one, **of_all, **spent})
    return text.getvalue()
