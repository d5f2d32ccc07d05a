"""What the door offers: each model by name, and the servers that answer for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_ansible.plan.pairs import answers_clients
from vllm_ansible.plan.routers import ROUTER, router_of
from vllm_ansible.plan.servers import servers
from vllm_ansible.problem import PlanError, Problem


def models(
    engines: Iterable[Mapping[str, Any]],
    hosts: Iterable[Mapping[str, Any]],
    processes: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the models of a plan in its order: backend, model, servers (name, address, port).

    hosts: site_host of every host of this run. processes: by host, what is recorded there; an
    engine's router counts where it is recorded. Engines of one name share its requests. Raises
    PlanError where the host of a server is not of this run, so that its address is not known.
    """
    addresses = {str(host["name"]): str(host["address"]) for host in hosts}
    found: dict[str, list[dict[str, Any]]] = {}
    for engine in engines:
        own = found.setdefault(str(engine["served_name"]), [])
        for name, host, port in _answering(engine, processes):
            if host not in addresses:
                raise PlanError(_left_out(str(engine["name"]), host))
            own.append({"name": name, "address": addresses[host], "port": port})
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
    return [
        {"backend": f"model{number}", "model": model, "servers": own}
        for number, (model, own) in enumerate(found.items())
    ]


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
    """Return the lines by which the door's program finds the backend of a model."""
    return "".join(f"{one['backend']} {one['model']}\n" for one in served)


def measurements(asked: Iterable[Mapping[str, Any]], host: str, log: str) -> list[dict[str, Any]]:
    """Return one measurement for each question that was asked; check mode asks none."""
    return [
        {
            "what": f"status {one['item']['status']} for {one['url']} without a key",
            "ok": one["status"] == one["item"]["status"],
            "expected": f"status {one['item']['status']}",
            "found": one["msg"] if one["status"] < 0 else f"status {one['status']}",
            "where": host,
            "fix": f"read {log}; does an engine answer? (playbooks/status.yml)",
        }
        for one in asked
        if "status" in one
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
    host: str, hosts: Iterable[Mapping[str, Any]], certificate: str, key: str
) -> list[dict[str, Any]]:
    """Return that the door's host is of this run, and that a certificate comes with its key."""
    names = [str(one["name"]) for one in hosts]
    return [
        {
            "what": "the host of the door",
            "ok": host in names,
            "expected": f"one of {', '.join(names)}",
            "found": host,
            "where": "door_host",
            "fix": "correct door_host, or add that host to --limit",
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
    names = ", ".join(str(one["model"]) for one in served)
    return f"{names}, {clients} client{'' if clients == 1 else 's'}"
