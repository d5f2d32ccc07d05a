"""What the door offers: each model by name, and the servers that answer for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_ansible.plan.adapters import adapters_of
from vllm_ansible.plan.dynamo import has_dynamo
from vllm_ansible.plan.pairs import answers_clients
from vllm_ansible.plan.routers import ROUTER, router_of
from vllm_ansible.plan.servers import servers
from vllm_ansible.problem import PlanError, Problem


def models(
    engines: Iterable[Mapping[str, Any]],
    hosts: Iterable[Mapping[str, Any]],
    processes: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the models of a plan in its order: backend, model, its names, servers (name, id,
    address, port), and whether all of them serve by priority.

    hosts: site_host of every host of this run. processes: by host, what is recorded there; an
    engine's router counts where it is recorded. Engines of one name share its requests. A LoRA
    adapter is a further name of its model, or a model of its own where only some of the engines
    have it. Raises PlanError where the host of a server is not of this run, so that its address is
    not known.
    """
    addresses = {str(host["name"]): str(host["address"]) for host in hosts}
    found: dict[str, list[dict[str, Any]]] = {}
    bases: dict[str, str] = {}
    unordered = set()
    for engine in engines:
        base, answering = str(engine["served_name"]), _answering(engine, processes)
        for model in (base, *_adapters(engine)):
            bases.setdefault(model, base)
            if answers_clients(engine) and not _by_priority(engine):
                unordered.add(model)
            own = found.setdefault(model, [])
            for name, host, port in answering:
                if host not in addresses:
                    raise PlanError(_left_out(str(engine["name"]), host))
                own.append({"name": name, "address": addresses[host], "port": port})
                own[-1]["id"] = number_of(name, [one["id"] for one in own[:-1]])
    if not found:
        raise PlanError(
            Problem(
                "the door has no engine to stand before",
                expected="a plan with engines",
                found="none",
                where="plan.json",
                fix="run all of site.yml first",
            )
        )
    apart = {
        name: own for name, own in found.items() if bases[name] == name or own != found[bases[name]]
    }
    return [
        {
            "backend": f"model{number}",
            "model": model,
            "names": [model, *(one for one in found if one not in apart and bases[one] == model)],
            "servers": own,
            "by_priority": model not in unordered,
        }
        for number, (model, own) in enumerate(apart.items())
    ]


def number_of(name: str, taken: Sequence[int]) -> int:
    """Return the number by which HAProxy spreads conversations over servers.

    Left to itself it numbers them by their place, and one that is taken away moves those of all
    behind it. Of a number it uses 20 bits.
    """
    number = int(hashlib.sha256(name.encode()).hexdigest()[:5], 16)
    while number == 0 or number in taken:
        number = (number + 1) % (1 << 20)
    return number


def _adapters(engine: Mapping[str, Any]) -> list[str]:
    """Return the names of its LoRA adapters that clients may ask for; Dynamo knows none."""
    if has_dynamo(engine) or not answers_clients(engine):
        return []
    return adapters_of(engine)


def _by_priority(engine: Mapping[str, Any]) -> bool:
    """Tell whether vLLM heeds the priority of a request; Dynamo refuses a request with one."""
    if has_dynamo(engine):
        return False
    words = " ".join(str(word) for word in engine.get("arguments", ()))
    return "--scheduling-policy priority" in words.replace("=", " ")


def _answering(
    engine: Mapping[str, Any], processes: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> list[tuple[str, str, int]]:
    """Return name, host and port of what answers for an engine: its router, else its servers.

    Nothing of an engine that the front of its set asks.
    """
    if not answers_clients(engine):
        return []
    name, first = str(engine["name"]), str(engine["hosts"][0])
    if router_of(name) in processes.get(first, {}):
        return [(f"{name}-{ROUTER}", first, int(engine["ports"]["api"]))]
    return [(one.name, one.host, one.port) for one in servers(engine)]


def _left_out(engine: str, host: str) -> Problem:
    return Problem(
        f"the door stands before {engine}, and this run leaves out its host {host}",
        expected="every host that answers for an engine",
        found=f"without {host}",
        where="--limit",
        fix="add it to --limit, or run without it",
    )


def models_text(served: Iterable[Mapping[str, Any]]) -> str:
    """Return the lines by which the door's program finds the backend of a name."""
    return "".join(
        f"{one['backend']}{'+' if one.get('by_priority') else ''} {name}\n"
        for one in served
        for name in one["names"]
    )


def peers(
    doors: Sequence[str], own: str, hosts: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return name and address of the other doors, where this host has one.

    The name is that of a file on this host. One whose host is not of this run is left out: the
    settings are refused then.
    """
    if own not in doors:
        return []
    addresses = {str(host["name"]): str(host["address"]) for host in hosts}
    return [
        {"name": re.sub(r"[^A-Za-z0-9._-]", "_", one), "address": addresses[one]}
        for one in doors
        if one != own and one in addresses
    ]


def subjects(
    doors: Iterable[str], hosts: Iterable[Mapping[str, Any]], reached: Mapping[str, str]
) -> list[str]:
    """Return names and addresses of all doors, for the one certificate that they share."""
    addresses = {str(host["name"]): str(host["address"]) for host in hosts}
    return [
        name
        for one in doors
        for name in (one, addresses.get(one, one), str(reached.get(one) or one))
    ]


def measurements(asked: Iterable[Mapping[str, Any]], host: str, log: str) -> list[dict[str, Any]]:
    """Return one measurement for each question that was asked; check mode asks none."""
    return [
        {
            "what": f"status {one['item']['status']} for {_asked(one)} without a key",
            "ok": _status(one) == one["item"]["status"],
            "expected": f"status {one['item']['status']}",
            "found": _found(one),
            "where": host,
            "fix": f"read {log}; does an engine answer? (playbooks/status.yml)",
        }
        for one in asked
        if not one.get("skipped")
    ]


def _status(one: Mapping[str, Any]) -> int:
    """Return the status of an answer; below 0 where there is none."""
    return int(one.get("status", -1))


def _asked(one: Mapping[str, Any]) -> str:
    return str(one.get("url") or f"/{one['item']['path']}")


def _found(one: Mapping[str, Any]) -> str:
    return f"status {_status(one)}" if _status(one) >= 0 else str(one.get("msg") or "no status")


def peer_measurements(
    asked: Iterable[Mapping[str, Any]], host: str, log: str
) -> list[dict[str, Any]]:
    """Return that this door may read of each other one what clients have used there."""
    return [
        {
            "what": f"the counts of the door on {one['item']['name']} read by the one on {host}",
            "ok": _status(one) == 200,
            "expected": "status 200",
            "found": _found(one),
            "where": host,
            "fix": f"open door_port between the hosts of door_hosts, and read {log}",
        }
        for one in asked
        if not one.get("skipped")
    ]


def port_measurements(
    held: Iterable[Mapping[str, Any]], port: int, running: bool, host: str
) -> list[dict[str, Any]]:
    """Return the measurement that the port is free, or held by the door that runs already."""
    strangers = [] if running else [str(one["who"]) for one in held]
    return [
        {
            "what": f"port {port} free for the door",
            "ok": not strangers,
            "expected": "no other process listens there",
            "found": f"{strangers[0]} listens there" if strangers else "free, or the door's own",
            "where": f"{host}:{port}",
            "fix": "stop that process, or set door_port to another one",
        }
    ]


def setting_measurements(
    doors: Sequence[str],
    hosts: Iterable[Mapping[str, Any]],
    certificate: str,
    key: str,
    peer_key: str = "",
) -> list[dict[str, Any]]:
    """Return that each door's host is of this run, and that a certificate comes with its key."""
    names = [str(one["name"]) for one in hosts]
    several = len(doors) > 1
    where = "door_hosts" if several else "door_host"
    left_out = f"correct {where}, or add that host to --limit"
    if several:
        left_out += "; a host that is gone has to leave door_hosts"
    return [
        *(
            {
                "what": "the host of the door",
                "ok": host in names,
                "expected": f"one of {', '.join(names)}",
                "found": host,
                "where": where,
                "fix": left_out,
            }
            for host in doors
        ),
        {
            "what": "each host of door_hosts once",
            "ok": len(set(doors)) == len(doors),
            "expected": "names that differ",
            "found": ", ".join(doors),
            "where": "door_hosts",
            "fix": "name each host once",
        },
        {
            "what": "a key with which doors read each other's counts",
            "ok": bool(peer_key) or not several,
            "expected": "the engines' key on this controller, from which it is made",
            "found": "a key" if peer_key else "none",
            "where": "site_api_key_file",
            "fix": "run from the controller that has started the engines, or with one door",
        },
        {
            "what": "a certificate of the door with its key",
            "ok": bool(certificate) == bool(key),
            "expected": "both or neither of door_certificate_file and door_key_file",
            "found": "door_certificate_file alone" if certificate else "door_key_file alone",
            "where": "the inventory",
            "fix": "give both, or neither: then the host makes a certificate",
        },
    ]


def summary(served: Sequence[Mapping[str, Any]], clients: int) -> str:
    """Return what stands behind the door, and for how many."""
    names = ", ".join(str(name) for one in served for name in one["names"])
    return f"{names}, {clients} client{'' if clients == 1 else 's'}"
