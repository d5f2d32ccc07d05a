"""Prefill and decode apart: which engines belong together, their ports, their front, its gate.

All engines with role prefill or decode that serve one name are a set. The address of its first
decode engine is the address of the set: there a router asks a prefill engine, then a decode
engine, which fetches the prompt's keys and values from the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.node.kv_transfer import LEAST_SHARE
from vllm_ansible.plan.arguments import by_name
from vllm_ansible.plan.dynamo import BEHIND, DYNAMO, has_dynamo, has_frontend
from vllm_ansible.plan.roles import DECODE, PREFILL, ROLES, SERVE
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError, Problem

# What the plan puts before the first decode engine of a set; nobody writes it into an inventory.
PAIRS = "pairs"
LOOPBACK = "127.0.0.1"

# Of the engine's own block. Such an engine has no Ray, where the first two belong to its head; its
# server has the first port of the part for data ranks, since the `port` of the set is the router's.
FRONT, FIGURES = 1, 2
# Behind the router's watch.
SIDE_CHANNEL = 17

Engine = Mapping[str, Any]
# An engine as the inventory asks for it, and one of a plan: both import this file.
Asked = Any
Planned = TypeVar("Planned", bound=Any)
Processes = Mapping[str, Mapping[str, Any]]
NAME = re.compile(r".+-pairs")

# What the connector and the gate need, by the beginning of a name.
TAKEN = {
    "kv_transfer_config": "remove it: the plan writes it from role",
    "disable_log_stats": "remove it: the gate reads these counters",
    "data_parallel": "write several engines of the role",
}
SHORTEST = 4
# Of each pair: what vLLM compares when two engines meet, or what would end in other numbers.
SAME = (
    *("attention_backend", "block_size", "dtype", "hf_overrides", "kv_cache_dtype"),
    *("load_format", "max_model_len", "quantization", "revision", "speculative_config"),
    *("enable_lora", "lora_modules"),
)


def role_refusals(
    item: Mapping[str, Any], layout: Layout | None
) -> Iterator[tuple[str, str, object, str]]:
    """Yield key, what was expected, what was found and the fix of what a role rules out.

    layout: None where the planner is to choose it, or where it was refused already.
    """
    role = item.get("role", SERVE)
    if role not in (PREFILL, DECODE):
        return
    if layout is None or layout.data > 1 or layout.pipeline > 1:
        yield (
            "layout",
            f"{{tensor: N}} for role {role}: one server on one host",
            item.get("layout", "auto"),
            "write layout: {tensor: N}; for more prefill or decode, write another engine of the "
            "role with the same served_name",
        )
    if item.get("executor") not in (None, "mp"):
        yield (
            "executor",
            f"mp, or none, for role {role}",
            item.get("executor"),
            "remove executor",
        )
    given = item.get("vllm_args")
    for key in given if isinstance(given, Mapping) else ():
        name = str(key).lstrip("-").replace("-", "_").partition(".")[0]
        for one, fix in TAKEN.items():
            if name == one or (len(name) >= SHORTEST and one.startswith(name)):
                yield "vllm_args", f"no argument that role {role} rules out", key, fix
    variables = item.get("environment")
    for name in variables if isinstance(variables, Mapping) else ():
        if str(name).startswith("VLLM_NIXL_SIDE_CHANNEL") or name == "PYTHONPATH":
            yield "environment", f"no variable of the plan for role {role}", name, "remove it"


def set_problems(engines: Sequence[Asked]) -> list[Problem]:
    """Return what is wrong with the sets of a list of engines, whose own items are right."""
    problems: list[Problem] = []
    for name, members in _by_name(engines).items():
        roles = {role: [one for one in members if one.role == role] for role in ROLES}
        apart = roles[PREFILL] + roles[DECODE]
        if not apart:
            continue
        for role, other in ((PREFILL, DECODE), (DECODE, PREFILL)):
            if roles[role] and not roles[other]:
                problems.append(_alone(name, role, other, roles[role]))
        if roles[SERVE]:
            problems.append(
                Problem(
                    f"{name} is served by a set of prefill and decode and by engine "
                    f"{roles[SERVE][0].name} with role {SERVE}",
                    expected=f"either engines of role {SERVE}, or of role {PREFILL} and {DECODE}",
                    found=", ".join(f"{one.name}: {one.role}" for one in members),
                    where=f"engines {roles[SERVE][0].name}",
                    fix="give it another served_name, or a role of the set",
                )
            )
        problems += [found for one in apart[1:] if (found := _differing(apart[0], one))]
        if len({one.front for one in apart}) > 1:
            problems.append(_fronts(name, apart))
    return problems


def _by_name(engines: Sequence[Asked]) -> dict[str, list[Asked]]:
    found: dict[str, list[Asked]] = {}
    for engine in engines:
        found.setdefault(engine.served_name, []).append(engine)
    return found


def _alone(name: str, role: str, other: str, members: Sequence[Asked]) -> Problem:
    shown = ", ".join(one.name for one in members)
    return Problem(
        f"{name} has role {role} ({shown}) and no engine with role {other}",
        expected=f"at least one engine with role {other} and served_name {name}",
        found=f"{role}: {shown}; {other}: none",
        where=f"engines {members[0].name}.role",
        fix=f"add an engine with role: {other}, the same model and served_name: {name}, or write "
        f"role: {SERVE}",
    )


def _fronts(name: str, apart: Sequence[Asked]) -> Problem:
    shown = ", ".join(f"{one.name}: {one.front}" for one in apart)
    return Problem(
        f"the engines of the set {name} have different fronts: {shown}",
        expected="the same front in all engines of the set",
        found=shown,
        where=f"engines {apart[1].name}.front",
        fix=f"write front: {DYNAMO} in each of them, or in none",
    )


def _differing(first: Asked, second: Asked) -> Problem | None:
    """Return the refusal of two engines of a set that could not exchange what they computed."""
    one, other = _compared(first), _compared(second)
    differ = [key for key in one if one[key] != other[key]]
    if not differ:
        return None
    return Problem(
        f"engines {first.name} ({first.role}) and {second.name} ({second.role}) cannot exchange "
        f"KV caches: {', '.join(differ)} differ",
        expected=f"the same {', '.join(differ)} in both",
        found="; ".join(
            f"{engine.name}: {', '.join(f'{key} {values[key]}' for key in differ)}"
            for engine, values in ((first, one), (second, other))
        ),
        where=f"engines {second.name}",
        fix=f"give {second.name} the values of {first.name}",
    )


def _compared(engine: Asked) -> dict[str, object]:
    given = by_name(engine.vllm_args)
    return {
        "model": engine.model,
        "layout": engine.layout.name if engine.layout else "auto",
        **{name: given.get(name, "vLLM's default") for name in SAME},
    }


def is_apart(engine: Engine) -> bool:
    """Tell whether an engine of a plan has part in a set."""
    return engine.get("role") in (PREFILL, DECODE)


def is_front(engine: Engine) -> bool:
    """Tell whether the address of a planned engine is that of its set."""
    return engine.get("front") == PAIRS or (is_apart(engine) and has_frontend(engine))


def answers_clients(engine: Engine) -> bool:
    """Tell whether clients may ask an engine: of a set they ask its address alone."""
    return not is_apart(engine) or is_front(engine)


def fronted(planned: Sequence[Planned], without: str) -> list[Planned]:
    """Return engines of a plan with the front at the first decode engine of each set.

    without: what stands before all others.
    """
    found, seen = [], set()
    for engine in planned:
        front = engine.front
        if engine.role in (PREFILL, DECODE):
            behind = front in (DYNAMO, BEHIND)
            front = BEHIND if behind else without
            if engine.role == DECODE and engine.served_name not in seen:
                seen.add(engine.served_name)
                front = DYNAMO if behind else PAIRS
        found.append(replace(engine, front=front))
    return found


def spread(planned: Sequence[Planned]) -> list[Problem]:
    """Return the refusals of sets behind Dynamo whose engines are on several hosts."""
    hosts: dict[str, dict[str, list[str]]] = {}
    for engine in planned:
        if engine.role in (PREFILL, DECODE) and engine.front in (DYNAMO, BEHIND):
            for host in engine.hosts:
                hosts.setdefault(engine.served_name, {}).setdefault(host, []).append(engine.name)
    return [
        Problem(
            f"the set {name} has front: {DYNAMO} and engines on {len(found)} hosts",
            expected="all engines of the set on one host",
            found="; ".join(f"{host}: {', '.join(names)}" for host, names in found.items()),
            where=f"engines {next(iter(found.values()))[0]}.front",
            fix="write hosts: [NAME] with the same host in each, or remove front: vLLM's router "
            "stands before engines of several hosts",
        )
        for name, found in hosts.items()
        if len(found) > 1
    ]


def members(engine: Engine, engines: Iterable[Engine]) -> list[Engine]:
    """Return the planned engines of the set of one of them."""
    name = engine["served_name"]
    return [one for one in engines if is_apart(one) and one["served_name"] == name]


def side_channel(ports: Mapping[str, Any]) -> int:
    """Return where decode engines learn what they may fetch."""
    return int(ports["gcs"]) + SIDE_CHANNEL


def server_words(role: str) -> tuple[str, ...]:
    """Return what makes a server one of a set."""
    if role not in (PREFILL, DECODE):
        return ()
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if role == PREFILL else "kv_consumer",
        # Else a lost transfer is computed again, and nobody sees that prefill was for nothing.
        "kv_load_failure_policy": "fail",
    }
    return ("--kv-transfer-config", json.dumps(config))


def server_environment(
    role: str, host: Mapping[str, Any], ports: Mapping[str, Any], nixl: str
) -> dict[str, str]:
    """Return what a server of a set needs in its environment; nixl: the directory that has it."""
    if role not in (PREFILL, DECODE):
        return {}
    return {
        "PYTHONPATH": nixl,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": str(host["address"]),
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side_channel(ports)),
        # On a CPU there is no fabric to choose: the data plane alone.
        **({} if has_devices(host["accelerator"]) else {"UCX_NET_DEVICES": str(host["interface"])}),
    }


def refuse_place(name: str, role: str, image: bool, nixl: str, host: str) -> None:
    """Refuse a role where the engine comes in an image, or where NIXL was not installed."""
    if role not in (PREFILL, DECODE):
        return
    if image:
        raise PlanError(in_image(name, role))
    if not nixl:
        raise PlanError(
            Problem(
                f"engine {name} has role {role}, and {host} has no NIXL",
                expected="NIXL, which the stage install brings where a role needs it",
                found="none",
                where=host,
                fix="run the stage install first (--tags install), or all of site.yml",
            )
        )


def in_image(name: str, role: str) -> Problem:
    """Return the refusal of an engine of a set inside an image."""
    return Problem(
        f"engine {name} has role {role}, which an engine in an image cannot have",
        expected="engine_source: environment",
        found="engine_source: image",
        where=f"engines {name}.role",
        fix=f"write role: {SERVE}, or engine_source: environment",
    )


def told(engine: Engine, servers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the role is told of the front of a set.

    servers: engine, role, address and port of each server of the set.
    """
    block = int(engine["ports"]["gcs"])
    urls = {
        role: [
            {"engine": str(one["engine"]), "url": f"http://{one['address']}:{one['port']}"}
            for one in servers
            if one["role"] == role
        ]
        for role in (PREFILL, DECODE)
    }
    if has_dynamo(engine):
        # Its frontend asks prefill, then decode.
        return {"process": f"{engine['name']}-{DYNAMO}", "sized": False, **urls}
    return {
        "process": f"{engine['name']}-{PAIRS}",
        "port": block + FRONT,
        "figures": block + FIGURES,
        "url": f"http://{LOOPBACK}:{block + FRONT}",
        # vLLM's Rust front end, which Dynamo needs, counts tokens that came and no bytes.
        "sized": True,
        **urls,
    }


def starting_ports(wanted: Mapping[str, Any], processes: Processes) -> dict[str, str]:
    """Return the ports of the front of a set, unless it runs already."""
    if processes.get(wanted["process"], {}).get("running"):
        return {}
    return {str(wanted[one]): str(wanted["process"]) for one in ("port", "figures")}


def strays(processes: Processes, engines: Iterable[Engine], host: str) -> list[str]:
    """Return the recorded fronts of sets on a host where its plan has none."""
    planned = {
        f"{one['name']}-{PAIRS}"
        for one in engines
        if one.get("front") == PAIRS and one["hosts"][0] == host
    }
    return sorted(
        name
        for name, record in processes.items()
        if not record["engine"] and NAME.fullmatch(name) and name not in planned
    )


def steps(
    wanted: Mapping[str, Any],
    place: Mapping[str, str],
    user: str | None,
    depends: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the front of a set as `engine_phase` takes it.

    place: python and start of the program that gives it the engines' key, key_file, run_dir, and
    router (the Python of its environment). depends: what else a restart follows from.
    """
    words = [
        *("--host", LOOPBACK, "--port", str(wanted["port"])),
        *("--prometheus-host", LOOPBACK, "--prometheus-port", str(wanted["figures"])),
        *("--vllm-pd-disaggregation", "--kv-connector", "nixl", "--policy", "round_robin"),
        # An engine that is back is used within seconds; its own breaker waits a minute.
        *("--disable-circuit-breaker", "--health-check-interval-secs", "2"),
        *("--health-failure-threshold", "2", "--health-success-threshold", "1"),
        *("--retry-max-retries", "1", "--log-level", "warning"),
        *("--max-concurrent-requests", "8192"),
    ]
    for role in (PREFILL, DECODE):
        for one in wanted[role]:
            words += [f"--{role}", str(one["url"])]
    return [
        {
            "name": wanted["process"],
            "engine": "",
            "state": "started",
            "argv": [
                *(place["python"], "-s", "-E", place["start"], place["key_file"]),
                *(place["router"], "-m", "vllm_router.launch_router", *words),
            ],
            "environment": {"HOME": place["run_dir"], "DO_NOT_TRACK": "1", "NO_COLOR": "1"},
            "depends": dict(depends),
            "limits": {"nofile": "65536"},
            "user": user,
            "restart": True,
        }
    ]


def measurements(
    looked: Mapping[str, Any], wanted: Mapping[str, Any], where: str, logs: str
) -> list[dict[str, str | bool]]:
    """Return what must hold of a set, of what kv_transfer_check has found.

    One measurement for each pair, asked directly, and one for what clients ask. logs: the directory
    with the logs of the front.
    """
    reason = str(looked.get("reason") or "")
    found = list(looked.get("pairs") or ())
    names = [(p["engine"], d["engine"]) for p in wanted[PREFILL] for d in wanted[DECODE]]
    known = {(one["prefill"], one["decode"]): one for one in found}
    rows = [
        _transfer(
            f"the KV cache of a new prompt moved from {prefill} to {decode}",
            known.get((prefill, decode)) or {"reason": reason or "nothing was asked"},
            where,
            wanted["sized"],
            f"read the logs of {prefill} and {decode}: NIXL says there why a transfer failed",
        )
        for prefill, decode in names
    ]
    front = looked.get("front") or {"reason": reason or "nothing was asked"}
    return [
        *rows,
        _transfer(
            "the KV cache of a new prompt moved when a client asks",
            front,
            where,
            wanted["sized"],
            f"read {logs}/{wanted['process']}.log: it asks a prefill engine first",
        ),
    ]


def _transfer(
    what: str, one: Mapping[str, Any], where: str, sized: bool, fix: str
) -> dict[str, str | bool]:
    """Return the measurement of one prompt: most of it came, and bytes were moved for it.

    sized: whether bytes are counted at all.
    """
    tokens, remote = int(one.get("tokens") or 0), int(one.get("remote") or 0)
    moved, failed = int(one.get("bytes") or 0), int(one.get("failed") or 0)
    why = str(one.get("reason") or "")
    size = f"{moved} bytes" if sized else "bytes not counted by the Rust front end"
    counted = f"{remote} of {tokens} tokens, {size}, {failed} failed transfers"
    enough = 0 < LEAST_SHARE * tokens <= remote and (moved > 0 or not sized)
    return {
        "what": what,
        "ok": not why and enough and failed == 0,
        "expected": f"at least {LEAST_SHARE:.0%} of its tokens by a transfer, and none failed",
        "found": why or counted,
        "where": where,
        "fix": fix,
    }


def summary(engine: str, looked: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return what was found of a set, as one line."""
    front = looked.get("front") or {}
    tokens, remote = int(front.get("tokens") or 0), int(front.get("remote") or 0)
    count = f"{len(wanted[PREFILL])} prefill and {len(wanted[DECODE])} decode engines"
    if not tokens:
        return f"{engine}: {count}, nothing was moved"
    size = f" ({int(front.get('bytes') or 0) / 1e6:.1f} MB)" if wanted["sized"] else ""
    return f"{engine}: {count}, {remote} of {tokens} prompt tokens moved{size}"
