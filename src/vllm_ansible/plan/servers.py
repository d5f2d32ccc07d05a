"""The servers of an engine, by rank: what each process is called, and where it answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vllm_ansible.accelerators.platform import platform
from vllm_ansible.plan.dynamo import has_dynamo, rank_address
from vllm_ansible.plan.pairs import is_apart

# The release that the vendor's plugin for Enflame is bound to, by whatever name of a build.


@dataclass(frozen=True)
class Server:
    """One process that answers requests; `name` is that of its process."""

    name: str
    engine: str
    rank: int
    host: str
    devices: tuple[int, ...]
    port: int


def servers(engine: Mapping[str, Any]) -> tuple[Server, ...]:
    """Return the servers of one engine of a plan: one, or one for each data rank.

    Data ranks have ports of the engine's own block, no two of them the same, so that one machine
    can tunnel to all; the `api` port is left to what will stand before them. So it is with engines
    of a set of prefill and decode.
    """
    name, hosts, ports = str(engine["name"]), engine["hosts"], engine["ports"]
    layout = engine.get("layout") or {}
    ranks = engine.get("ranks") or ()
    data, tensor = int(layout.get("data", 1)), int(layout.get("tensor", 1))
    if data == 1:
        devices = tuple(rank["device"] for rank in ranks if rank["host"] == hosts[0])
        port = int(ports["worker_first" if is_apart(engine) else "api"])
        return (Server(serving(name), name, 0, str(hosts[0]), devices, port),)
    found = []
    for number in range(data):
        own = ranks[number * tensor : (number + 1) * tensor]
        host = str(own[0]["host"])
        devices = tuple(rank["device"] for rank in own)
        port = int(ports["worker_first"]) + number
        found.append(Server(serving(name, number), name, number, host, devices, port))
    return tuple(found)


def entry_of(engine: Mapping[str, Any]) -> str:
    """Return the entry of the inventory that a planned engine is of, which has its model."""
    return str(engine.get("part_of") or engine["name"])


def serving(engine: str, rank: int | None = None) -> str:
    """Return the name of an engine's serving process, or of that of one data rank."""
    return f"{engine}-serve" if rank is None else f"{engine}-serve-{rank}"


def is_server(engine: str, process: str) -> bool:
    """Tell whether a process of an engine is one that serves."""
    stem, dash, rank = process.rpartition("-")
    return process == serving(engine) or (bool(dash) and stem == serving(engine) and rank.isdigit())


def listed(
    engines: Iterable[Mapping[str, Any]],
    hosts: Iterable[Mapping[str, Any]] = (),
    engine_version: str = "",
) -> list[dict[str, Any]]:
    """Return the servers of all engines as tasks loop over them, with what is asked of each.

    hosts: site_host of every host of this run. engine_version: of vLLM, empty where nobody knows.
    `alongside` are the other ranks, where none steps unless all have a request.
    """
    by_name = {host["name"]: host for host in hosts}
    found = []
    for engine in engines:
        ranks = servers(engine)
        for one in ranks:
            kind = str(by_name.get(one.host, {}).get("accelerator", ""))
            others = [other for other in ranks if other.name != one.name]
            found.append(
                {
                    **asdict(one),
                    "of": len(ranks),
                    "entry": entry_of(engine),
                    "guarded": not has_dynamo(engine),
                    "address": rank_address(
                        engine, str(by_name.get(one.host, {}).get("address", ""))
                    ),
                    "hosts": {
                        str(by_name[host]["address"]): host
                        for host in sorted(engine["hosts"], key=lambda name: name != one.host)
                        # Ranks of other executors write logs of their own.
                        if engine.get("executor") == "ray" and host in by_name
                    },
                    "served_name": engine["served_name"],
                    "probe": engine["probe"],
                    "random": random_weights(engine),
                    "unasked": unasked(engine, pinned(kind, engine_version)),
                    "alongside": [
                        f"http://{by_name[other.host]['address']}:{other.port}"
                        for other in others
                        if pinned(kind, engine_version) and other.host in by_name
                    ],
                }
            )
    return found


def unasked(engine: Mapping[str, Any], first_engine: bool = False) -> str:
    """Return why a server must not be asked for numbers of a prompt, empty where it may."""
    if any(
        str(word).startswith("--kv-sharing-fast-prefill") for word in engine.get("arguments", ())
    ):
        # vLLM ends on it: an assertion in its loop.
        return "kv_sharing_fast_prefill has no right numbers of prompts"
    return "vLLM 0.9.2 was never measured with prompt_logprobs" if first_engine else ""


def random_weights(engine: Mapping[str, Any]) -> bool:
    """Tell whether a planned engine computes with numbers that nobody trained."""
    words = " ".join(str(word) for word in engine.get("arguments", ()))
    dummy = re.search(r"--load-format[= ]dummy\b", words) is not None
    return dummy or engine.get("model_source") == "random"


def pinned(accelerator: str, engine_version: str) -> bool:
    """Tell whether this is the vendor's release, whose data ranks meet by their environment.

    It still has the first engine of vLLM (V0), in which no rank steps by itself.
    """
    return platform(accelerator).first_engine(engine_version)
