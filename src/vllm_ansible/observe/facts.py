"""What the plan, the inventory and the ledger say, as metrics beside which rules hold others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vllm_ansible.accelerators.platform import has_devices
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
# Beyond what the planner expects at most: its load has one length of prompts, a real one has not.
ROOM = 2.0
Fact = dict[str, Any]


def fact(name: str, value: float, **labels: str) -> Fact:
    """Return one sample with the words on its metric."""
    return {"name": name, "labels": labels, "value": float(value), "help": HELP[name]}


def inter_token_limit(engine: Mapping[str, Any], given: float, default: float) -> float:
    """Return the limit of an engine's time between tokens, in seconds.

    The given one; else twice that of the slowest rate that the planner expects at its load; else
    the default, where the planner knows nothing of the engine.
    """
    rates = (engine.get("estimate") or {}).get("output_tokens_per_second") or [0]
    if given or rates[0] <= 0:
        return given or default
    return round(ROOM * float(engine["estimate"]["concurrency"]) / float(rates[0]), 4)


def of_engines(
    engines: Iterable[Mapping[str, Any]], first_token: float, inter_token: float, default: float
) -> list[Fact]:
    """Return the limits of each engine."""
    found = []
    for engine in engines:
        name = str(engine["name"])
        found.append(fact("vllm_limit_first_token_seconds", first_token, engine=name))
        limit = inter_token_limit(engine, inter_token, default)
        found.append(fact("vllm_limit_inter_token_seconds", limit, engine=name))
    return found


def of_host(
    engines: Iterable[Mapping[str, Any]], host: Mapping[str, Any], machine: Mapping[str, Any]
) -> list[Fact]:
    """Return how many devices of a host are used, and when its machine ends, where it does."""
    devices = {
        rank["device"]
        for engine in engines
        for rank in engine.get("ranks") or ()
        if rank["host"] == host["name"]
    }
    found = []
    if devices and has_devices(str(host["accelerator"])):
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
