"""Which engines a host is asked about: those whose API it serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.plan.pairs import answers_clients, is_apart, is_front, members
from vllm_ansible.plan.plan import digest
from vllm_ansible.plan.roles import DECODE, PREFILL
from vllm_ansible.plan.routers import router_of, url_of
from vllm_ansible.plan.servers import servers

LOAD = ("concurrency", "input_tokens", "output_tokens")
# Seconds that a measurement is expected to take at most.
LONGEST = 60


def plan_of(plan: Mapping[str, Any], engine: str) -> Mapping[str, Any]:
    """Return a plan with this engine alone; the plan as it is where none is named."""
    if not engine:
        return plan
    return {**plan, "engines": [one for one in plan.get("engines", ()) if one["name"] == engine]}


def measured(plan: Mapping[str, Any], engine: str) -> Mapping[str, Any]:
    """Return a plan with what is measured of it, or of one engine: what clients may ask.

    Engines of a set are one entry, that of its address, with the hosts and ranks of all of them.
    The planned rate of an engine is no rate of theirs.
    """
    engines = list(plan.get("engines", ()))
    asked = [one for one in engines if one["name"] == engine] if engine else engines
    if engine and asked and is_apart(asked[0]):
        asked = members(asked[0], engines)
    return {
        **plan,
        "engines": [
            _whole(one, members(one, engines)) if is_front(one) else one
            for one in asked
            if answers_clients(one)
        ],
    }


def _whole(front: Mapping[str, Any], apart: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the engine at a set's address with what belongs to all of the set."""
    ordered = [front, *(one for one in apart if one is not front)]
    return {
        **{key: value for key, value in front.items() if key != "estimate"},
        "hosts": list(dict.fromkeys(host for one in ordered for host in one["hosts"])),
        "ranks": [rank for one in ordered for rank in one.get("ranks") or ()],
        "set": [{key: value for key, value in one.items() if key != "reasons"} for one in apart],
    }


def served_on(
    plan: Mapping[str, Any], host: Mapping[str, Any], only: str = ""
) -> list[dict[str, Any]]:
    """Return what engine_benchmark wants to know of each engine that a host serves, or of one.

    Of data ranks the first is measured where no router stands before them: its client knows one
    address. Of a set of prefill and decode its address is, whether its router runs or not.
    """
    return [
        {
            "name": engine["name"],
            "served_name": engine["served_name"],
            "url": f"http://{host['address']}:{servers(engine)[0].port}",
            **_of_several(engine, str(host["address"])),
            **_load(engine.get("estimate") or {}),
            # Reasons are words for people, and change without anything else.
            "digest": digest({key: value for key, value in engine.items() if key != "reasons"}),
        }
        for engine in measured(plan, only)["engines"]
        if engine["hosts"][0] == host["name"]
    ]


def ramped_on(
    plan: Mapping[str, Any], host: Mapping[str, Any], engine: str
) -> list[dict[str, Any]]:
    """Return what engine_ramp wants to know of an engine: what engine_benchmark does, and more.

    Counters and gauges are read where all servers of the engine are this host's own.
    """
    found = served_on(plan, host, engine)
    for one, planned in zip(found, measured(plan, engine)["engines"], strict=True):
        ranks = servers(planned)
        one["servers"] = [rank.name for rank in ranks if rank.host == host["name"]]
        if all(rank.host == host["name"] for rank in ranks):
            one["metrics"] = [f"http://{host['address']}:{rank.port}" for rank in ranks]
    return found


def client(load: Mapping[str, Any], url: str = "") -> dict[str, str]:
    """Return what engine_benchmark and engine_ramp want to know of a load generator elsewhere.

    load is the host of the group `load`, empty without one; url that of the door, if it asks there.
    """
    if not load:
        return {}
    directory = f"{load['cluster_dir']}/load"
    through = {"url": url, "certificate": load.get("certificate", "")} if url else {}
    return {"host": load["name"], "program": load["program"], "directory": directory, **through}


def load_measurements(
    plan: Mapping[str, Any],
    host: str,
    load: Mapping[str, Any],
    key_file: str,
    door: str,
    engine: str = "",
) -> list[dict[str, Any]]:
    """Return what is judged before a host of the group `load` sends requests.

    plan is the whole plan, engine the one that is measured, or empty for all. The door takes
    requests with the key of a client, and gives them to each engine of a name in turn.
    """
    rows = [
        {
            "what": f"{host} was prepared by this run",
            "ok": bool(load),
            "expected": "the client's environment on the host of the group load",
            "found": "prepared" if load else "not prepared",
            "where": host,
            "fix": f"leave out --limit, or add {host} to it",
        },
        {
            "what": "a door for the client's key",
            "ok": bool(door) or not key_file,
            "expected": "door_clients_file, which names the clients of the door",
            "found": door or "no door",
            "where": "benchmark_load_key_file",
            "fix": "set door_clients_file and run playbooks/route.yml, or leave out "
            "benchmark_load_key_file: the engines' own addresses and key are used then",
        },
    ]
    offered = measured(plan, "")["engines"]
    for one in measured(plan, engine)["engines"] if key_file else ():
        names = [
            each["name"]
            for each in offered
            if each["served_name"] == one["served_name"] and each["name"] != one["name"]
        ]
        rows.append(
            {
                "what": f"{one['name']} alone answers for {one['served_name']} at the door",
                "ok": not names,
                "expected": f"no other engine that serves {one['served_name']}",
                "found": ", ".join(names) or "no other",
                "where": host,
                "fix": "leave out benchmark_load_key_file: the load then goes to each engine's "
                "own address",
            }
        )
    return rows


def _load(estimate: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the load that the planned rate is for: two rounds, or one where two take minutes."""
    rates = estimate.get("output_tokens_per_second") or ()
    if not rates:
        return {}
    load = {name: round(estimate[name]) for name in LOAD}
    two = 2 * load["concurrency"]
    seconds = two * load["output_tokens"] / max(rates[1], 1)
    return {"load": {"requests": two if seconds <= LONGEST else load["concurrency"], **load}}


def _of_several(engine: Mapping[str, Any], address: str) -> dict[str, str]:
    """Return which process is measured where it is one of several, and what may stand before it."""
    ranks = servers(engine)
    if len(ranks) == 1 and not is_front(engine):
        return {}
    url = url_of(engine, address)
    return {
        "server": ranks[0].name,
        "router": router_of(str(engine["name"])),
        "router_url": url,
        **({"url": url} if is_front(engine) else {}),
    }


def of_set(engine: Mapping[str, Any]) -> str:
    """Return how many engines of each role are measured together, empty for an engine alone."""
    roles = [one["role"] for one in engine.get("set") or ()]
    if not roles:
        return ""
    return f"a set of {roles.count(PREFILL)} prefill and {roles.count(DECODE)} decode"
