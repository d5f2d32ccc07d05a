"""What Prometheus scrapes of a cluster, as its file_sd reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vllm_ansible.plan.routers import router_of
from vllm_ansible.plan.servers import listed

Target = dict[str, Any]


def targets(
    cluster: str,
    engines: Iterable[Mapping[str, Any]],
    hosts: Iterable[Mapping[str, Any]],
    processes: Mapping[str, Mapping[str, Any]],
    node_port: int,
    doors: Iterable[str],
) -> list[Target]:
    """Return every target with its labels, `job` among them.

    hosts: site_host of every host of this run; what is elsewhere is not watched. processes: by
    host, what is recorded there; a router is watched where it is. doors: address and port of
    each. Ranks behind Dynamo answer on loopback alone: their router is watched.
    """
    engines, hosts = list(engines), list(hosts)
    addresses = {str(one["name"]): str(one["address"]) for one in hosts}
    found: list[Target] = []

    def add(job: str, address: str, port: int, **labels: Any) -> None:
        texts = {name: str(value) for name, value in labels.items()}
        labelled = {"job": job, "cluster": cluster, **texts}
        found.append({"targets": [f"{address}:{port}"], "labels": labelled})

    for one in listed(engines, hosts):
        if one["host"] in addresses and one["guarded"]:
            add(
                "vllm",
                one["address"],
                one["port"],
                engine=one["engine"],
                host=one["host"],
                rank=one["rank"],
            )
    for engine in engines:
        name, first = str(engine["name"]), str(engine["hosts"][0])
        if first in addresses and router_of(name) in processes.get(first, {}):
            add("router", addresses[first], engine["ports"]["api"], engine=name, host=first)
        for host in engine["hosts"] if engine["executor"] == "ray" else ():
            if host in addresses:
                add("ray", addresses[host], engine["ports"]["metrics"], engine=name, host=host)
    for host, address in addresses.items():
        add("node", address, node_port, host=host)
    for door in doors:
        address, _, port = door.rpartition(":")
        add("door", address, int(port))
        add("clients", address, int(port))
    return found
