"""What a ramp has found: figures by load, the knee, what limits, goodput, cost, the plan."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from vllm_ansible.benchmark import cost
from vllm_ansible.benchmark.bottleneck import NOT_REACHED, UNKNOWN, bottleneck
from vllm_ansible.node.engine import load_samples
from vllm_ansible.node.engine import ramp as points_of
from vllm_ansible.node.engine.ramp import LOAD, PREFILL, USERS
from vllm_ansible.plan.servers import servers

VERSION = 2
LATENCIES = tuple(points_of.LATENCIES.values())
PERCENTILES = points_of.PERCENTILES
WAYS = ("input", "output")
KPIS = (
    "requests_per_second",
    "input_tokens_per_second",
    "output_tokens_per_second",
    *(f"{way}_tokens_per_second_per_{one}" for way in WAYS for one in ("user", "rank")),
    "good_requests_per_second",
    *(f"{name}_p{percentile}" for name in LATENCIES for percentile in PERCENTILES),
    "e2e_ms_mean",
    *(f"{name}_ms_mean" for name in points_of.TIMES),
    "preemptions",
    "prefix_cache_hit_share",
    "other_requests",
    "send_lag_share",
    "seats",
    *load_samples.KEYS,
)
# Users are within the objectives where so many of their requests are.
GOOD_SHARE = 0.9
COLUMNS = (
    *(
        "engine",
        "model",
        "kind",
        "users",
        "rate",
        "round",
        "requests",
        "failed",
        "error",
        "compiled",
    ),
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
    points, arrivals = document["points"], ramp.get("arrivals", USERS)
    steps = [
        _step(number, [one for one in points if _is(one, LOAD, number)], arrivals, ranks, price)
        for number in sorted({one["step"] for one in points if one["kind"] == LOAD})
    ]
    knee = points_of.knee(points)
    prompts = [one for one in points if _is(one, PREFILL, knee)]
    prefill = _step(knee, prompts, arrivals, ranks, {}) if prompts else None
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
        "arrivals": arrivals,
        "burstiness": ramp.get("burstiness", 1) if arrivals != USERS else None,
        "load": _load(ramp, points),
        "measured": [times[0], times[-1]] if times else [],
        "steps": steps,
        "prompts_alone": prefill,
        "knee": knee,
        "bottleneck": _bottleneck(steps, knee, prefill, arrivals),
        "generator": _generator(
            steps, engine["hosts"][0], document["fingerprint"].get("generator") or {}
        ),
        "goodput": _goodput(steps, ramp["slo"]),
        "price": dict(price),
        "cost": _cost(steps, knee, prefill, price),
        "planned": _planned({} if alone else engine.get("estimate") or {}, ramp, steps),
        "command": points[0]["command"] if points else "",
    }


def _is(point: Mapping[str, Any], kind: str, step: float) -> bool:
    return bool(point["kind"] == kind and point["step"] == step)


def _load(ramp: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what was asked; of prompts from a file the mean lengths of those that were sent."""
    found = {name: ramp[name] for name in ("input_tokens", "output_tokens", "rounds")}
    found |= {
        "dataset": ramp.get("dataset", points_of.RANDOM),
        "digest": ramp.get("dataset_digest", ""),
    }
    if found["dataset"] != points_of.RANDOM:
        sent = [one["figures"] for one in points if not one["figures"]["failed"]]
        requests = max(1, sum(one["requests"] for one in sent))
        found["input_tokens"] = round(sum(one["tokens_in"] for one in sent) / requests)
        found["output_tokens"] = round(sum(one["tokens_out"] for one in sent) / requests)
    return found


def _step(
    number: float,
    points: Sequence[Mapping[str, Any]],
    arrivals: str,
    ranks: int,
    price: Mapping[str, Any],
) -> dict[str, Any]:
    """Return one step: each round, the median and the range of those that are judged."""
    users = number if arrivals == USERS else 0
    rounds = [{"round": one["round"], **_derived(one["figures"], users, ranks)} for one in points]
    whole = [one for one in rounds if not one["failed"]]
    good = [one for one in whole if points_of.judged(one)]
    figures = {}
    for name in KPIS:
        values = [float(one[name]) for one in good or whole if one.get(name) is not None]
        if values:
            figures[name] = {"median": median(values), "least": min(values), "most": max(values)}
    step: dict[str, Any] = {
        "step": number,
        "requests": sum(one["requests"] for one in rounds),
        "failed": sum(one["failed"] for one in rounds),
        **({"unread": lost} if (lost := sum(one.get("unread", 0) for one in rounds)) else {}),
        "error": next((one["error"] for one in rounds if one["error"]), ""),
        "compiled": next((one["compiled"] for one in rounds if one.get("compiled")), ""),
        "figures": figures,
        "rounds": rounds,
    }
    if figures and price.get("usd_per_hour"):
        step["cost"] = cost.per_million(price["usd_per_hour"], medians(step))
    return step


def _derived(figures: Mapping[str, Any], users: float, ranks: int) -> dict[str, Any]:
    rates = {way: figures[f"{way}_tokens_per_second"] for way in WAYS}
    return {
        **figures,
        **{
            f"{way}_tokens_per_second_per_user": rate / users if users else None
            for way, rate in rates.items()
        },
        **{f"{way}_tokens_per_second_per_rank": rate / ranks for way, rate in rates.items()},
    }


def _bottleneck(
    steps: Sequence[Mapping[str, Any]],
    knee: float,
    prefill: Mapping[str, Any] | None,
    arrivals: str,
) -> dict[str, Any]:
    """Return what limits at the last step that was answered."""
    whole = [one for one in steps if one["figures"] and not one["failed"]]
    if not whole:
        return bottleneck({}, 0, 0, None)
    last, share = whole[-1], None
    figures = {**medians(last), "requests": last["requests"] / len(last["rounds"])}
    first = last["rounds"][0]
    figures |= {name: float(first[name]) for name in ("input_tokens", "output_tokens")}
    at_knee = next((one for one in whole if one["step"] == knee), None)
    if prefill and prefill["figures"] and at_knee:
        prompts = medians(prefill)["requests_per_second"]
        share = medians(at_knee)["requests_per_second"] / prompts if prompts else None
    return bottleneck(
        figures, last["step"], knee, share, least=whole[0]["step"], users=arrivals == USERS
    )


def _generator(
    steps: Sequence[Mapping[str, Any]], host: str, own: Mapping[str, str]
) -> dict[str, Any]:
    """Return where the load came from, and what it took of that host at the last step.

    host is the engine's, own a host of the generator's own, and the address that it asked.
    """
    figures = next((medians(one) for one in reversed(steps) if one["figures"]), {})
    used = figures.get("client_cpus")
    all_of_host = figures.get("client_host_cpus" if own else "host_cpus")
    return {
        "host": own.get("host") or host,
        "shared": not own,
        "asked": own.get("url", ""),
        "cpus": used,
        "share": used / all_of_host if used is not None and all_of_host else None,
    }


def generator_words(result: Mapping[str, Any]) -> str:
    """Return in a few words where the load came from."""
    found = result["generator"]
    if found["shared"]:
        return f"load generator beside the engine on {found['host']}"
    return f"load from {found['host']} to {found['asked']}"


def medians(step: Mapping[str, Any]) -> dict[str, float]:
    """Return the medians of one number of users by name."""
    return {name: float(one["median"]) for name, one in step["figures"].items()}


def at(result: Mapping[str, Any], step: float) -> Mapping[str, Any]:
    """Return what was found at a step."""
    return next((one for one in result["steps"] if one["step"] == step), {})


def load_words(result: Mapping[str, Any], step: float) -> str:
    """Return a step as people say it."""
    if result["arrivals"] == USERS:
        return f"{step:,} {'user' if step == 1 else 'users'}"
    return f"{step:g} requests/s"


def _goodput(steps: Sequence[Mapping[str, Any]], slo: Mapping[str, float]) -> dict[str, Any] | None:
    """Return up to which step requests are within the objectives; None where none is stated."""
    stated = {name: limit for name, limit in slo.items() if limit}
    if not stated:
        return None
    rates = []
    for step in steps:
        figures = medians(step)
        if "good_requests_per_second" in figures:
            good, every = figures["good_requests_per_second"], figures["requests_per_second"]
            rates.append((step["step"], good, good / every if every else 0.0))
    within = [number for number, _, share in rates if share >= GOOD_SHARE]
    best = max(rates, key=lambda one: one[1], default=(0, 0.0, 0.0))
    return {
        "slo": stated,
        "share": GOOD_SHARE,
        "step_within": max(within, default=0),
        "most_good_requests_per_second": best[1],
        "most_good_at": best[0] if best[1] else 0,
        "shares": {str(number): share for number, _, share in rates},
    }


def _cost(
    steps: Sequence[Mapping[str, Any]],
    knee: float,
    prefill: Mapping[str, Any] | None,
    price: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return what tokens cost at the knee; None where no price is known."""
    hourly = price.get("usd_per_hour")
    step = next((one for one in steps if one["step"] == knee), None)
    if not hourly or step is None:
        return None
    found = {"step": knee, "usd_per_hour": hourly, **step["cost"]}
    if prefill is not None:
        found |= cost.split(hourly, medians(step), medians(prefill))
    return found


def _planned(
    estimate: Mapping[str, Any], ramp: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the planner's rate, and the measured one where the load is the same."""
    rates = estimate.get("output_tokens_per_second")
    if not rates:
        return None
    number = round(estimate["concurrency"])
    same = all(round(estimate[name]) == ramp[name] for name in ("input_tokens", "output_tokens"))
    # The plan's rate is for users and random prompts, and for an engine that has compiled.
    same &= ramp.get("arrivals", USERS) == USERS and not ramp.get("dataset_path")
    known = [one for one in steps if any(map(points_of.judged, one["rounds"]))]
    step = next((one for one in known if one["step"] == number), None)
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


def knee_reached(result: Mapping[str, Any]) -> bool:
    """Tell whether more load than at the knee was measured, and brought no more."""
    return any(one["step"] > result["knee"] for one in result["steps"] if not one["compiled"])


def line(result: Mapping[str, Any]) -> str:
    """Return one line about a ramp."""
    knee = "knee at" if knee_reached(result) else "no knee up to"
    figures = medians(at(result, result["knee"]))
    alone = f", {result['alone']}" if result["alone"] else ""
    words = [
        f"{result['engine']}{alone}: {knee} {load_words(result, result['knee'])}, "
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
    words += [bottleneck_words(result["bottleneck"]), generator_words(result)]
    if goodput := result["goodput"]:
        words.append(f"{load_words(result, goodput['step_within'])} within the objectives")
    words.append(_cost_words(result))
    if failed := [one["step"] for one in result["steps"] if one["failed"]]:
        words.append(f"requests failed at {steps_words(result, failed)}")
    if unread := sum(one.get("unread", 0) for one in result["steps"]):
        words.append(f"{unread} answers not read by vLLM's client, whose times do not count")
    if compiled := [one["step"] for one in result["steps"] if one["compiled"]]:
        shown = steps_words(result, compiled)
        words.append(f"vLLM compiled at {shown}, in one round at least, which is not judged")
    return "; ".join(words)


def steps_words(result: Mapping[str, Any], steps: Sequence[float]) -> str:
    """Return steps as people say them."""
    unit = "users" if result["arrivals"] == USERS else "requests/s"
    return f"{', '.join(f'{one:g}' for one in steps)} {unit}"


def bottleneck_words(found: Mapping[str, Any]) -> str:
    """Return in a few words what limits."""
    if found["name"] in (NOT_REACHED, UNKNOWN):
        return f"bottleneck {found['name']}: {found['why']}"
    if not found["certain"]:
        return f"bottleneck not certain: {' or '.join(found['candidates'])}"
    return f"bottleneck: {found['name']} ({found['why']})"


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
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:#.3g}"


def as_csv(result: Mapping[str, Any]) -> str:
    """Return a row for each round of each number of users, and of the prompts alone."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    hourly = result["price"].get("usd_per_hour")
    steps = [(LOAD, one) for one in result["steps"]]
    column = "users" if result["arrivals"] == USERS else "rate"
    if result["prompts_alone"]:
        steps.append((PREFILL, result["prompts_alone"]))
    for kind, step in steps:
        for one in step["rounds"]:
            spent = cost.per_million(hourly, one) if hourly and one["tokens_out"] else {}
            of_all = {name: result[name] for name in ("engine", "model")}
            of_all |= {"kind": kind, column: step["step"], "usd_per_hour": hourly}
            writer.writerow({**one, **of_all, **spent})
    return text.getvalue()
