"""Judge what was measured of all engines, and say it in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.benchmark.served import LOAD, of_set
from vllm_ansible.plan.servers import servers

Looks = Mapping[str, Mapping[str, Any]]


def verdict(engines: Sequence[Mapping[str, Any]], looks: Looks, check: bool) -> dict[str, Any]:
    """Return the evidence, the first failure, or that nothing was measured.

    engines are those of the plan, looks what engine_benchmark said on each host of this run.
    """
    here = [engine for engine in engines if engine["hosts"][0] in looks]
    if not here:
        return no_engine(engines, list(looks))
    measured = []
    for engine in here:
        look = looks[engine["hosts"][0]].get("engines", {}).get(engine["name"], {})
        if look.get("figures"):
            figures = look["figures"]
            expected = _expected(engine.get("estimate") or {}, figures)
            measured.append({**figures, **_ranks(engine, figures), **expected})
        elif check:
            words = look.get("reason") or look.get("why", "")
            return {
                "skipped": True,
                "msg": f"check mode: {engine['name']} is not measured: {words}",
            }
        else:
            return unmeasured(engine, look)
    return {
        "changed": False,
        "evidence": {
            "gate": "benchmark",
            "summary": "; ".join(line(one) for one in measured),
            "values": {"engines": measured},
        },
    }


def _ranks(engine: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many data ranks there are, all measured by way of their router, or the first."""
    ranks = servers(engine)
    if apart := of_set(engine):
        return {"set": apart}
    if len(ranks) == 1:
        return {}
    return {
        **({} if "router" in figures else {"measured_rank": 0}),
        "ranks": [{"rank": one.rank, "host": one.host, "port": one.port} for one in ranks],
    }


def _expected(estimate: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the planned rate, least, middle and most, where it is for what was measured."""
    rates = estimate.get("output_tokens_per_second")
    same = all(round(estimate.get(name) or 0) == figures.get(name) for name in LOAD)
    # A rate during which the engine compiled is not the engine's.
    same &= not figures.get("compiled")
    return {"planned_tokens_per_second": list(rates)} if rates and same else {}


def line(figures: Mapping[str, Any]) -> str:
    """Return one line about an engine."""
    ranks = figures.get("ranks")
    part = f", rank 0 of {len(ranks)} data ranks alone" if ranks else ""
    if ranks and "router" in figures:
        part = f", {len(ranks)} data ranks behind {figures['router']}"
    if "set" in figures:
        part = f", {figures['set']}"
    words = "; vLLM compiled meanwhile, so this rate is not judged"
    compiled = words if figures.get("compiled") else ""
    rates = figures.get("planned_tokens_per_second")
    planned = f" (planned {rates[1]:,.0f}, {rates[0]:,.0f} to {rates[2]:,.0f})" if rates else ""
    lost = figures.get("unread")
    unread = f", {lost} not read by vLLM's client" if lost else ""
    own = figures.get("generator")
    load = f", load from {own['host']} to {own['url']}" if own else ", load from the engine's host"
    return (
        f"{figures['name']}{part}: TTFT {figures['ttft_ms_median']:.0f} ms, "
        f"{figures['output_tokens_per_second']:.1f} tokens/s{planned} at "
        f"{figures['concurrency']} concurrent, "
        f"{figures['requests'] - figures['failed']} of {figures['requests']} answered"
        f"{unread}{load} ({figures['measured_at']}){compiled}"
    )


def no_engine(engines: Sequence[Mapping[str, Any]], hosts: Sequence[str]) -> dict[str, Any]:
    """Return the failure of a run whose hosts serve none of the engines."""
    return {
        "failed": True,
        "msg": "there is no engine to measure",
        "expected": "an engine of the plan on a host of this run",
        "found": f"{len(engines)} planned, none of them served by {', '.join(hosts)}",
        "where": "plan.json in the cluster's directory on the first host",
        "fix": "run site.yml first, without --tags and --limit",
    }


def unmeasured(engine: Mapping[str, Any], look: Mapping[str, Any]) -> dict[str, Any]:
    """Return the failure of an engine without figures."""
    name, host = engine["name"], engine["hosts"][0]
    server = servers(engine)[0]
    return {
        "failed": True,
        "msg": f"{name} cannot be measured: {server.name} does not run on {host}",
        "expected": f"{server.name} running on {host}",
        "found": look.get("why") or look.get("reason") or "not checked",
        "where": f"{host}, port {server.port}",
        "fix": "run the stage serve first: it says why an engine does not come up",
    }
