"""How an engine that did not answer after its first start is started next, on its ladder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ansible.node.process import process
from vllm_ansible.node.watchdog import ladder
from vllm_ansible.node.watchdog.finding import ENDED
from vllm_ansible.node.watchdog.ladder import AGAIN, Kept, Point
from vllm_ansible.plan import restarts
from vllm_ansible.plan.decision import NONE, STARTS
from vllm_ansible.plan.process_spec import SERVE

Engine = Mapping[str, Any]
# A start without an end, as restarts call it.
UNANSWERED = "unanswered"


@dataclass(frozen=True)
class Site:
    """Who starts the engines: site_host of every host, the cluster's head, who rents them.

    most: how often an engine is started again. lines: those of the known failures.
    """

    hosts: Sequence[Mapping[str, Any]]
    head: str
    provider: str
    most: int
    lines: Mapping[str, Point]


def climbs(
    engines: Iterable[Engine],
    verdicts: Mapping[str, Any],
    decision: Mapping[str, Any],
    found: Mapping[str, Kept],
    logs: Mapping[str, str],
    site: Site,
    now: float,
) -> dict[str, dict[str, Any]]:
    """Return what to keep of each engine that is to be started again, with its `steps` by host.

    verdicts: of M(engine_verdicts). decision: of M(engine_decision). found: what is kept in the
    head's ladder, with `current`. logs: the tails of each engine's logs.

    Empty as soon as one engine that did not answer has no rung left, or may not be started again:
    the run fails for it.
    """
    chosen: dict[str, dict[str, Any]] = {}
    planned = {str(one["name"]): one for one in engines}
    for name in verdicts["unready"]:
        steps = _steps(decision, name)
        started = decision["engines"].get(name, {}).get("action", NONE) != NONE
        kept = found.get(name) or {}
        kept = kept if kept.get("current") else {}
        tried = list(kept.get("tried", (AGAIN.name,)))
        # One that begins on the rung that has helped before fails for something else.
        if not started or kept.get("helped") or name in verdicts["wrong"] or len(tried) > site.most:
            return {}
        (known,) = restarts.wanted(
            [planned[name]], site.hosts, site.head, site.provider, site.lines
        )
        specs = {one["name"]: ladder.descended(process.spec(one), kept) for one in steps}
        if kept and not ladder.holds(kept, specs, known["hardware"]):
            return {}
        rungs = [ladder.rung(one) for one in known["rungs"]]
        kind = UNANSWERED if name in verdicts["silent"] else ENDED
        contained = any(spec.cleanup for spec in specs.values())
        now_on = {**kept, "tried": tried}
        rung, why = ladder.choose(rungs, now_on, kind, logs.get(name, ""), contained)
        if not why:
            return {}
        entry = ladder.entry(rung, why, specs, known["hardware"], [*tried, rung.name], now)
        climbed = [_climbed(one, ladder.climbed(rung, specs[one["name"]])) for one in steps]
        chosen[name] = {**entry, "steps": climbed}
    return chosen


def _steps(decision: Mapping[str, Any], engine: str) -> list[Mapping[str, Any]]:
    """Return the steps that start the servers of an engine."""
    every = [step for phases in decision["hosts"].values() for step in phases[STARTS[SERVE]]]
    return [step for step in every if step["engine"] == engine]


def _climbed(step: Mapping[str, Any], spec: process.Spec) -> dict[str, Any]:
    return {**step, "argv": list(spec.argv), "environment": dict(spec.environment)}


def document(
    found: Mapping[str, Kept], chosen: Mapping[str, Kept], ready: Iterable[str]
) -> dict[str, Any]:
    """Return what the head's ladder says from now on. ready: engines that have answered.

    What has not helped and is not in use counts for nothing.
    """
    used = {name: one for name, one in found.items() if one["helped"] or one.get("current")}
    engines = {
        name: {key: value for key, value in one.items() if key not in ("current", "steps")}
        for name, one in {**used, **chosen}.items()
    }
    return helped({"version": 1, "engines": engines}, ready)


def helped(document: Mapping[str, Any], ready: Iterable[str]) -> dict[str, Any]:
    """Return the same after these engines have answered."""
    engines = {
        name: {**one, "helped": one["helped"] or name in ready}
        for name, one in document["engines"].items()
    }
    return {**document, "engines": engines}


def rows(chosen: Mapping[str, Kept]) -> list[str]:
    """Return one line for each engine that is started again."""
    return [
        f"{name} has not answered and is started again with {one['says']}, for {one['why']}; "
        f"cost: {one['cost']}"
        for name, one in chosen.items()
    ]
