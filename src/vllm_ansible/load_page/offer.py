"""What the load-test page offers, and what must be true of it once it is there."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vllm_ansible.plan.pairs import answers_clients
from vllm_ansible.plan.servers import servers
from vllm_ansible.problem import PlanError, Problem

LOCKED = 401


@dataclass(frozen=True)
class Backend:
    """An engine's API: address and port on the data plane, and the name that clients ask for."""

    name: str
    model: str
    address: str
    port: int


def backends(
    engines: Iterable[Mapping[str, Any]],
    hosts: Iterable[Mapping[str, Any]],
    names: Sequence[str],
    routers: Iterable[str] = (),
) -> list[Backend]:
    """Return the engines of a plan that are offered, all of them where no name is given.

    hosts: site_host of every host of this run. routers: engines with a router. Raises PlanError
    for a name that no engine has, and for an engine whose first host is not of this run, so that
    its address is not known.
    """
    planned = {str(engine["name"]): engine for engine in engines if answers_clients(engine)}
    addresses = {host["name"]: str(host["address"]) for host in hosts}
    wanted = list(names) or list(planned)
    unknown = [name for name in wanted if name not in planned]
    if unknown or not wanted:
        raise PlanError(
            Problem(
                f"the load-test page cannot offer {', '.join(unknown) or 'any engine'}",
                expected=f"names of planned engines: {', '.join(planned) or 'there is none'}",
                found=", ".join(wanted) or "none",
                where="load_page_engines",
                fix="correct load_page_engines, or set load_page: false",
            )
        )
    absent = [name for name in wanted if planned[name]["hosts"][0] not in addresses]
    if absent:
        raise PlanError(
            Problem(
                f"the load-test page offers {', '.join(absent)}, and this run leaves its host out",
                expected="the first host of every engine that is offered",
                found=f"without {', '.join(planned[name]['hosts'][0] for name in absent)}",
                where="--limit",
                fix="add them to --limit, or run without it",
            )
        )
    return [
        Backend(
            name,
            str(planned[name]["served_name"]),
            addresses[planned[name]["hosts"][0]],
            # Of data ranks without a router the first: the page knows one address for each engine.
            planned[name]["ports"]["api"] if name in routers else servers(planned[name])[0].port,
        )
        for name in wanted
    ]


def listing(offered: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return what the page is told of the engines: no address."""
    return [{"name": str(one["name"]), "model": str(one["model"])} for one in offered]


def subject_names(names: Iterable[str]) -> str:
    """Return the subjectAltName of a certificate for some names and addresses, each once."""
    return ",".join(dict.fromkeys(f"{_kind(name)}:{name}" for name in names))


def _kind(name: str) -> str:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "DNS"
    return "IP"


def port_measurements(
    held: Iterable[Mapping[str, Any]], port: int, program: str, user: str, host: str
) -> list[dict[str, Any]]:
    """Return the measurement that the page's port is free, or held by the page of an earlier run.

    user: who the page runs as. Without root, nobody is told whose another user's process is.
    """
    # The kernel keeps so much of a program's name.
    ours = f"{Path(program).name[:15]} (process "
    strangers = [
        str(one["who"])
        for one in held
        if not (one["who"].startswith(ours) and one["who"].endswith(f"{user})"))
    ]
    return [
        {
            "what": f"port {port} free for the load-test page",
            "ok": not strangers,
            "expected": "no other process listens there",
            "found": f"{strangers[0]} listens there" if strangers else "free, or the page's own",
            "where": f"{host}:{port}",
            "fix": "stop that process, or set load_page_port to another one",
        }
    ]


def questions(offered: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return paths below the page's address, with the status that each has without the key."""
    models = [{"path": f"engines/{one['name']}/v1/models", "status": LOCKED} for one in offered]
    return [{"path": "", "status": 200}, {"path": "engines.json", "status": LOCKED}, *models]


def measurements(
    asked: Iterable[Mapping[str, Any]], host: str, cluster_dir: str
) -> list[dict[str, Any]]:
    """Return one measurement for each question that was asked; check mode asks none."""
    return [
        {
            "what": f"status {one['item']['status']} for {one['url']} without the key",
            "ok": one["status"] == one["item"]["status"],
            "expected": f"status {one['item']['status']}",
            "found": one["msg"] if one["status"] < 0 else f"status {one['status']}",
            "where": host,
            "fix": f"read {cluster_dir}/logs/load-page.log; is the engine still serving?",
        }
        for one in asked
        if "status" in one
    ]


def as_dicts(offered: Iterable[Backend]) -> list[dict[str, Any]]:
    """Return the engines that are offered as templates loop over them."""
    return [asdict(one) for one in offered]
