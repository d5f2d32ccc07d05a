"""What the plan, the inventory and the ledger say, as metrics beside which rules hold others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.plan.servers import servers
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.provision.ledger import FILE, Ledger

HELP = {
    "vllm_limit_first_token_seconds": "Time to the first token, p90, above which an alert fires.",
    "vllm_limit_inter_token_seconds": "Time between tokens, p90, above which an alert fires.",
    "vllm_planned_devices": "Devices of a host that engines of the plan use.",
    "vllm_machine_end_timestamp_seconds": "When the provider ends this machine.",
    "vllm_spend_limit_usd": "What the machines of the cluster may cost in all.",
    "vllm_spend_ended_usd": "What those cost that have ended.",
    "vllm_spend_usd_per_hour": "What an hour of those that are rented costs.",
    "vllm_spend_since_timestamp_seconds": "Since when, on the mean by price, those are rented.",
}
# Beyond what the planner expects of its load, whose prompts have one length.
ROOM = 2.0
LIMITS = {"vllm_limit_first_token_seconds": "TTFT", "vllm_limit_inter_token_seconds": "ITL"}
Fact = dict[str, Any]


def fact(name: str, value: float, **labels: str) -> Fact:
    """Return one sample with the words on its metric."""
    return {"name": name, "labels": labels, "value": float(value), "help": HELP[name]}


def planned_limits(engine: Mapping[str, Any]) -> tuple[float, float]:
    """Return the limits of the times to the first and between tokens, in seconds.

    Twice what the planner expects at its load: of the last first token where all of it arrives at
    once, and of the slowest rate. 0 where the planner knows none.
    """
    estimate = engine.get("estimate") or {}
    rates = estimate.get("output_tokens_per_second") or [0]
    first = ROOM * float(estimate.get("last_first_token_seconds") or 0)
    inter = ROOM * float(estimate["concurrency"]) / float(rates[0]) if rates[0] > 0 else 0.0
    return round(first, 4), round(inter, 4)


def of_engines(
    engines: Iterable[Mapping[str, Any]], first_token: float, inter_token: float
) -> list[Fact]:
    """Return the limits of each engine: the given ones, else those of the plan, where it has any.

    Without a limit its alert has nothing to compare with, and cannot fire.
    """
    found = []
    for engine in engines:
        limits = zip(LIMITS, (first_token, inter_token), planned_limits(engine), strict=True)
        found += [
            fact(name, given or planned, engine=str(engine["name"]))
            for name, given, planned in limits
            if given or planned
        ]
    return found


def unlimited(engines: Iterable[Mapping[str, Any]], first_token: float, inter_token: float) -> str:
    """Return in words which engines have no limit of these times; nothing where all have."""
    lacking = []
    for engine in engines:
        has = {one["name"] for one in of_engines([engine], first_token, inter_token)}
        words = [word for name, word in LIMITS.items() if name not in has]
        if words:
            lacking.append(f"{engine['name']} ({' and '.join(words)})")
    return f"no planned limit, so no alert: {', '.join(lacking)}" if lacking else ""


def devices_in_use(engines: Iterable[Mapping[str, Any]], host: Mapping[str, Any]) -> list[int]:
    """Return the devices of a host that engines of the plan use; a processor is none."""
    if not has_devices(str(host["accelerator"])):
        return []
    ranks = [rank for engine in engines for rank in engine.get("ranks") or ()]
    return sorted({int(rank["device"]) for rank in ranks if rank["host"] == host["name"]})


def of_page(
    engines: Iterable[Mapping[str, Any]], cluster: str, hosts: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what a page shows of the plan: engines with their ranks, hosts with their devices."""
    engines = list(engines)
    return {
        "cluster": cluster,
        "engines": [
            {
                "name": str(one["name"]),
                "model": str(one["served_name"]),
                "layout": Layout(**one["layout"]).name,
                "hosts": list(one["hosts"]),
                "ranks": [{"rank": rank.rank, "host": rank.host} for rank in servers(one)],
            }
            for one in engines
        ],
        "hosts": [
            {
                "name": str(host["name"]),
                "accelerator": str(host["accelerator"]),
                "in_use": devices_in_use(engines, host),
            }
            for host in hosts
        ],
    }


def of_host(
    engines: Iterable[Mapping[str, Any]], host: Mapping[str, Any], machine: Mapping[str, Any]
) -> list[Fact]:
    """Return how many devices of a host are used, and when its machine ends, where it does."""
    devices = devices_in_use(engines, host)
    found = []
    if devices:
        found.append(fact("vllm_planned_devices", len(devices)))
    if machine.get("ends_at"):
        found.append(fact("vllm_machine_end_timestamp_seconds", float(machine["ends_at"])))
    return found


def of_spend(state: Path, limit: float) -> list[Fact]:
    """Return what the cluster's machines cost, from its ledger; nothing without one.

    In figures that change only with the machines, and from which Prometheus computes what they
    have cost by now: `ended + usd_per_hour * (time() - since) / 3600`.
    """
    files = sorted(state.glob(f"*{FILE}"))
    entries = list(Ledger(files[0]).entries().values()) if files else []
    rented = [one for one in entries if one.until is None]
    cents = sum(one.cents_per_hour for one in rented)
    ended = sum(one.cents(0) for one in entries if one.until is not None)
    if not entries:
        return []
    since = sum(one.cents_per_hour * one.since for one in rented) / cents if cents else 0
    found = [
        fact("vllm_spend_ended_usd", round(ended / 100, 2)),
        fact("vllm_spend_usd_per_hour", cents / 100),
        fact("vllm_spend_since_timestamp_seconds", round(since)),
    ]
    return [*found, fact("vllm_spend_limit_usd", limit)] if limit else found
