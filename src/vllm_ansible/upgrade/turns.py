"""Which engines an upgrade restarts, in which order, and who answers for each meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vllm_ansible.plan.adapters import adapters_of
from vllm_ansible.plan.decision import RESTART
from vllm_ansible.plan.pairs import is_apart
from vllm_ansible.plan.plan import Plan
from vllm_ansible.plan.routers import ROUTER
from vllm_ansible.plan.servers import servers

PlanDict = Mapping[str, Any]
Looks = Mapping[str, Mapping[str, Mapping[str, Any]]]
DOOR = "door"


def door_hosts(looks: Looks) -> list[str]:
    """Return the hosts whose doors run."""
    return [host for host, found in looks.items() if found.get(DOOR, {}).get("running")]


def turns(
    before: PlanDict,
    after: PlanDict,
    decision: Mapping[str, Mapping[str, Any]],
    looks: Looks,
    interrupted: str = "",
) -> list[dict[str, Any]]:
    """Return the engines to restart, in the order of the plan that runs.

    decision: by engine of the plan `after`, what M(engine_decision) said. looks: the processes of
    each host. interrupted: the engine whose upgrade an earlier run has begun and not ended; it
    comes first. Each has why, its servers' names at the door, its peers (other engines that answer
    for its model and all its adapters at the door meanwhile), whether its clients have to wait, and
    whether the door finds it at another place, or by another name, afterwards.
    """
    wanted = {str(one["name"]): one for one in after["engines"]}
    running = {str(one["name"]): one for one in before["engines"] if _runs(one, looks)}
    names = [str(one["name"]) for one in before["engines"]]
    order = [name for name in names if name == interrupted and name in wanted]
    order += [
        name
        for name in names
        if name in wanted
        and name in running
        and name != interrupted
        and decision.get(name, {}).get("action") == RESTART
    ]
    found = []
    planned = {str(one["name"]): one for one in before["engines"]}
    door = bool(door_hosts(looks))
    for name in order:
        model, adapters = planned[name]["served_name"], set(adapters_of(planned[name]))
        peers = [
            other
            for other, one in running.items()
            if door
            and other != name
            and one["served_name"] == model
            and not is_apart(one)
            and adapters <= set(adapters_of(one))
        ]
        found.append(
            {
                "engine": name,
                "model": str(model),
                "reasons": list(decision.get(name, {}).get("reasons", ())),
                "again": name == interrupted,
                "servers": door_servers(planned[name], wanted[name]),
                "moves": name == interrupted or _place(planned[name]) != _place(wanted[name]),
                "peers": peers,
                "waits": name in running and not peers,
            }
        )
        # From here on it answers for what it is asked to be.
        running[name] = wanted[name]
    return found


def door_servers(*engines: Mapping[str, Any]) -> list[str]:
    """Return what an engine's servers are called at the door before and after; as they are there.

    A router stands there in the place of the servers of its engine.
    """
    names = [
        name
        for engine in engines
        for name in (f"{engine['name']}-{ROUTER}", *(one.name for one in servers(engine)))
    ]
    return list(dict.fromkeys(names))


def all_door_servers(plan: PlanDict) -> list[str]:
    """Return what the servers of all engines of a plan are called at the door."""
    return door_servers(*plan["engines"])


def _place(engine: Mapping[str, Any]) -> Any:
    """Return what the door knows of an engine."""
    return engine["served_name"], engine["ports"]["api"], servers(engine)


def _runs(engine: Mapping[str, Any], looks: Looks) -> bool:
    return all(looks.get(one.host, {}).get(one.name, {}).get("running") for one in servers(engine))


def measurements(
    found: Sequence[Mapping[str, Any]],
    before: PlanDict,
    after: PlanDict,
    looks: Looks,
    interrupt: bool,
) -> list[dict[str, Any]]:
    """Return what must hold before the first engine is touched."""
    again = {str(one["engine"]) for one in found if one["again"]}
    wanted = {str(one["name"]) for one in after["engines"]}
    apart = {
        str(one["name"]) for plan in (before, after) for one in plan["engines"] if is_apart(one)
    }
    result = [_apart(str(one["engine"])) for one in found if one["engine"] in apart]
    for engine in before["engines"]:
        name = str(engine["name"])
        if name not in wanted:
            result.append(_gone(name))
        elif name not in again:
            result.append(_serving(name, _runs(engine, looks), str(engine["hosts"][0])))
    door = bool(door_hosts(looks))
    result += [
        {
            "what": f"who answers for {one['model']} while {one['engine']} restarts",
            "ok": interrupt or not one["waits"],
            "expected": "another engine of the same served_name behind the door, or "
            "upgrade_interrupt=true",
            "found": "no other engine of this model" if door else "no door before the engines",
            "where": str(one["engine"]),
            "fix": "add -e upgrade_interrupt=true: "
            + (
                "the door answers 503 with Retry-After until it serves again"
                if door
                else "its requests end, and clients have no answer until it serves again"
            )
            + "; or add an engine of the same served_name where there is room, run site.yml, then "
            "this again",
        }
        for one in found
    ]
    return result


def _apart(name: str) -> dict[str, Any]:
    return {
        "what": f"engine {name} can be upgraded by itself",
        "ok": False,
        "expected": "an engine that answers alone",
        "found": "it is of a set of prefill and decode",
        "where": name,
        "fix": "site.yml -e allow_disruption=true restarts the set",
    }


def _gone(name: str) -> dict[str, Any]:
    return {
        "what": f"engine {name} still in the inventory",
        "ok": False,
        "expected": "the engines that run; others may be changed, none removed",
        "found": f"{name} runs, and the inventory has no engine of this name",
        "where": name,
        "fix": "remove it first: site.yml -e allow_disruption=true with the other engines as they "
        "run",
    }


def _serving(name: str, runs: bool, host: str) -> dict[str, Any]:
    return {
        "what": f"engine {name} runs",
        "ok": runs,
        "expected": "all engines running before one of them is upgraded",
        "found": "running" if runs else "a server of it does not run",
        "where": host,
        "fix": "run playbooks/start.yml first (it starts what was planned), or site.yml with the "
        "inventory as it was",
    }


def summary(
    found: Sequence[Mapping[str, Any]], before: PlanDict, after: PlanDict, check: bool
) -> str:
    """Return in one line what is upgraded and why."""
    known = {str(one["name"]) for one in before["engines"]}
    new = [str(one["name"]) for one in after["engines"] if str(one["name"]) not in known]
    rest = f"; left to site.yml: {', '.join(new)} (new)" if new else ""
    if not found:
        return f"nothing to upgrade: every engine runs as the inventory says{rest}"
    begin = "would upgrade" if check else "upgrade of"
    return f"{begin} {'; then '.join(map(_words, found))}{rest}"


def _words(turn: Mapping[str, Any]) -> str:
    if turn["waits"]:
        meanwhile = "interrupted"
    elif turn["peers"]:
        meanwhile = f"while {', '.join(turn['peers'])} answers"
    else:
        meanwhile = "which does not run"
    why = "; ".join(turn["reasons"]) or "its upgrade was begun and not ended"
    return f"{turn['engine']}, {meanwhile} ({why})"


def next_plan(now: PlanDict, after: PlanDict, engine: str) -> dict[str, Any]:
    """Return the plan that runs now with one engine as the inventory wants it."""
    plan, wanted = Plan.from_dict(now), Plan.from_dict(after).engine(engine)
    engines = [wanted if one.name == engine and wanted else one for one in plan.engines]
    return replace(plan, engines=tuple(engines)).to_dict()
