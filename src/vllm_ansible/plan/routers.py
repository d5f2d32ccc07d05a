"""Which engines have a router before their data ranks, and what it is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_ansible.plan import dynamo, pairs
from vllm_ansible.plan.servers import listed, random_weights
from vllm_ansible.problem import PlanError, Problem

ROUTER, WATCH = "router", "watch"
# Of the engine's own block, before its ranks and behind MOVED_API; on loopback alone.
WATCH_PORT = 16

Engine = Mapping[str, Any]


def router_of(engine: str) -> str:
    """Return the name of the process that stands before an engine's ranks."""
    return f"{engine}-{ROUTER}"


def watch_of(engine: str) -> str:
    """Return the name of the process that tells the router which ranks compute."""
    return f"{engine}-{WATCH}"


def has_router(engine: Engine) -> bool:
    """Tell whether an engine has several servers, or those of its set, behind one router."""
    return int((engine.get("layout") or {}).get("data", 1)) > 1 or pairs.is_front(engine)


def url_of(engine: Engine, address: str) -> str:
    """Return where an engine's router answers; its first host has this address."""
    return f"http://{address}:{engine['ports']['api']}"


def on_host(
    engines: Iterable[Engine], hosts: Iterable[Mapping[str, Any]], name: str, engine_version: str
) -> list[dict[str, Any]]:
    """Return what each router of a host is told.

    hosts: site_host of every host of this run. Raises PlanError where the host of a rank is not of
    this run, so that its address is not known.
    """
    by_name = {str(host["name"]): host for host in hosts}
    planned = list(engines)
    return [
        _told(engine, planned, by_name, engine_version)
        for engine in planned
        if has_router(engine) and engine["hosts"][0] == name
    ]


def _told(
    engine: Engine,
    engines: Iterable[Engine],
    hosts: Mapping[str, Mapping[str, Any]],
    engine_version: str,
) -> dict[str, Any]:
    apart = pairs.members(engine, engines) if pairs.is_front(engine) else []
    before = {str(name): None for one in apart or [engine] for name in one["hosts"]}
    absent = [name for name in before if name not in hosts]
    if absent:
        raise PlanError(
            Problem(
                f"the router of {engine['name']} needs all its ranks, and this run leaves out "
                f"{', '.join(absent)}",
                expected=f"all hosts of engine {engine['name']}",
                found=f"without {', '.join(absent)}",
                where="--limit",
                fix="add them to --limit, or run without it",
            )
        )
    servers = listed([engine], hosts.values(), engine_version)
    addresses = {name: str(one["address"]) for name, one in hosts.items()}
    ranks = [
        {"name": f"rank-{one['rank']}", "address": one["address"], "port": one["port"]}
        for one in servers
    ]
    moves = {}
    if apart:
        roles = {one["name"]: one["role"] for one in apart}
        servers = [{**one, "role": roles[one["engine"]]} for one in listed(apart, hosts.values())]
        moves = pairs.told(engine, servers)
    fronted = dynamo.told(engine, servers, addresses) if dynamo.has_frontend(engine) else {}
    paired = {} if fronted else moves
    if fronted:
        # It chooses the rank; the router keeps keys and address as everywhere.
        ranks = [{"name": "dynamo", "address": dynamo.LOOPBACK, "port": fronted["port"]}]
    elif paired:
        ranks = [{"name": "pairs", "address": pairs.LOOPBACK, "port": paired["port"]}]
    first = hosts[engine["hosts"][0]]
    return {
        "engine": str(engine["name"]),
        "index": int(engine["index"]),
        "served_name": str(engine["served_name"]),
        "probe": dict(engine["probe"]),
        "random": random_weights(engine),
        "url": url_of(engine, str(first["address"])),
        "port": int(engine["ports"]["api"]),
        "watch_port": int(engine["ports"]["gcs"]) + WATCH_PORT,
        "process": router_of(str(engine["name"])),
        "watch": watch_of(str(engine["name"])),
        "ranks": ranks,
        # Its ranks step together or not at all.
        "lockstep": any(one["alongside"] for one in servers),
        "dynamo": fronted,
        # vLLM's router, and what is proven of the set whatever stands before it.
        "pairs": paired,
        "moves": moves,
    }


def beside(
    engines: Iterable[Engine], hosts: Iterable[Mapping[str, Any]], name: str
) -> list[dict[str, Any]]:
    """Return each Dynamo that has a part on a host, as the router before it is told of it.

    Raises PlanError where a host of it is not of this run.
    """
    by_name = {str(host["name"]): host for host in hosts}
    planned = list(engines)
    return [
        _told(engine, planned, by_name, "")
        for engine in planned
        if dynamo.has_frontend(engine) and name in engine["hosts"]
    ]


def recorded(processes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the engines of whose router anything is recorded on a host."""
    found = []
    for name, record in processes.items():
        engine, _, part = name.rpartition("-")
        if engine and part in (ROUTER, WATCH) and not record["engine"]:
            found.append(engine)
    return list(dict.fromkeys(found))


def strays(
    processes: Mapping[str, Mapping[str, Any]], engines: Iterable[Engine], host: str
) -> list[str]:
    """Return the engines whose router is recorded on a host where the plan has none for them."""
    planned = {one["name"] for one in engines if has_router(one) and one["hosts"][0] == host}
    return [engine for engine in recorded(processes) if engine not in planned]


def removal(engines: Iterable[str]) -> list[dict[str, str]]:
    """Return the steps that stop and forget what stands before the ranks of these engines."""
    return [
        {"name": name(engine), "engine": "", "state": "absent"}
        for engine in engines
        for name in (router_of, watch_of)
    ]


def concern(
    engines: Iterable[Engine], host: str, processes: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Tell whether a host has a router, or is to have one."""
    wanted = any(
        (has_router(one) and one["hosts"][0] == host)
        or (dynamo.has_frontend(one) and host in one["hosts"])
        for one in engines
    )
    left = dynamo.strays(processes, (), host) or pairs.strays(processes, (), host)
    return wanted or bool(recorded(processes) or left)


def starting_ports(
    told: Mapping[str, Any], processes: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return the ports that a router's processes take which do not run yet, and whose they are."""
    wanted = ((told["port"], told["process"]), (told["watch_port"], told["watch"]))
    return {
        str(port): str(name) for port, name in wanted if not processes.get(name, {}).get("running")
    }


def drained(ranks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ranks that somebody has told to drain."""
    return [str(one["name"]) for one in ranks if one["draining"]]


def settled(ranks: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether every rank is as it is wanted: proven, or able to serve and told to drain."""
    return all(_holds(one) for one in ranks)


def _holds(rank: Mapping[str, Any]) -> bool:
    return bool(rank["proven"] or (rank["draining"] and rank["passed"]))


def state_words(engine: str, ranks: Sequence[Mapping[str, Any]]) -> str:
    """Return how many ranks a router has, and which of them drain, with the way back."""
    drain = drained(ranks)
    if not drain:
        return "1 rank, up" if len(ranks) == 1 else f"{len(ranks)} ranks, all up"
    return f"{len(ranks)} ranks, {len(ranks) - len(drain)} up; {_drain_words(engine, drain)}"


def _drain_words(engine: str, drain: Sequence[str]) -> str:
    one = f"-e drain_engine={engine} -e drain_rank={drain[0].rpartition('-')[2]}"
    return (
        f"set to drain: {', '.join(drain)} "
        f"(playbooks/drain_rank.yml {one} -e drain_state=ready ends that)"
    )


def answer_measurement(
    answer: Mapping[str, Any],
    told: Mapping[str, Any],
    ranks: Sequence[Mapping[str, Any]],
    log: str,
) -> dict[str, Any]:
    """Return the measurement of what completion_check has found of the router itself."""
    drain = drained(ranks)
    none_left = bool(ranks) and len(drain) == len(ranks)
    return {
        "what": "an answer by way of the router, and none without the key",
        "ok": bool(answer.get("ok")),
        "expected": "a correct answer",
        "found": answer.get("reason") or answer.get("answer") or "nothing",
        "where": told["url"],
        "fix": _drain_words(told["engine"], drain) if none_left else f"read {log}",
    }


def measurements(
    looked: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]], where: str, log: str
) -> list[dict[str, Any]]:
    """Return one measurement for each rank: proven by both its checks, and up unless it drains.

    looked: the result of router_ranks. wanted: as the router was told.
    """
    found = {str(one["name"]): one for one in looked.get("ranks", ())}
    unknown = {"words": looked.get("msg") or "the router does not know it"}
    return [
        {
            "what": f"{one['name']} up in the router",
            "ok": one["name"] in found and _holds(found[one["name"]]),
            "expected": "it listens, and has computed a token",
            "found": found.get(one["name"], unknown)["words"],
            "where": f"{where}, {one['address']}:{one['port']}",
            "fix": f"read {log}, and the log of that rank",
        }
        for one in wanted
    ]
