"""What one host, or one task, needs to see of a plan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_ansible.plan.dynamo import GRPC, has_dynamo
from vllm_ansible.plan.environment import KEPT_ON_THEIR_HOST
from vllm_ansible.plan.pairs import is_apart, side_channel
from vllm_ansible.plan.servers import entry_of, servers

Planned = Mapping[str, Any]
Host = Mapping[str, Any]

# Which of an engine's ports each of its parts listens on.
RAY_NODE = (
    "node_manager",
    "object_manager",
    "runtime_env_agent",
    "dashboard_agent_listen",
    "dashboard_agent_grpc",
    "metrics",
)
PORTS_OF = {
    "head": ("gcs", "dashboard", "client", "autoscaler_metrics", "dashboard_metrics", *RAY_NODE),
    "worker": RAY_NODE,
    "serve": ("api",),
}

# In the home of an engine, as a directory. Where such a file is not found, Ray's head asks the
# metadata services of three clouds where it runs, even where usage statistics are disabled
# (get_cluster_config_to_report in ray/_common/usage/usage_lib.py, 2.60).
RAY_CLUSTER_FILE = "ray_bootstrap_config.yaml"


def engines_on(engines: Iterable[Planned], host: str) -> list[Planned]:
    """Return the engines that have a rank on a host."""
    return [engine for engine in engines if host in engine["hosts"]]


def read_by(engines: Iterable[Mapping[str, Any]], host: str, hosts: Sequence[str]) -> list[Any]:
    """Return the engines whose models a host reads for all: it is the first of theirs."""
    found = []
    for engine in engines:
        theirs = [one for one in hosts if one in (engine.get("hosts") or hosts)]
        found += [engine] if theirs[:1] == [host] else []
    return found


def members(engine: Planned, hosts: Iterable[Host]) -> dict[str, dict[str, Any]]:
    """Return data-plane address and number of devices of each host of an engine."""
    addresses = {host["name"]: host["address"] for host in hosts}
    return {
        name: {
            "address": addresses[name],
            "devices": sum(1 for rank in engine["ranks"] if rank["host"] == name),
        }
        for name in engine["hosts"]
    }


def ray_dirs(engines: Iterable[Planned], host: Host) -> dict[str, str]:
    """Return Ray's temporary directory of each engine on a host."""
    return {engine["name"]: f"{host['run_dir']}/{engine['index']}" for engine in engines}


def directories(engines: Iterable[Planned], host: Host) -> list[str]:
    """Return the directories that the engines of a host need, parents first."""
    # A host that was restarted has lost the one for sockets, which the stage prepare made.
    found = [host["run_dir"]]
    for engine in engines_on(engines, host["name"]):
        own = f"{host['cluster_dir']}/engines/{engine['name']}"
        found += [own, f"{own}/config", f"{own}/cache", f"{host['run_dir']}/t{engine['index']}"]
        found += [f"{own}/cache/{RAY_CLUSTER_FILE}"] if engine["executor"] == "ray" else []
    return found


def parser_arguments(
    engines: Iterable[Planned], host: str, models: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return model and arguments of each engine a host serves, as `vllm serve` parses them."""
    return {
        engine["name"]: [
            models[entry_of(engine)],
            f"--tensor-parallel-size={engine['layout']['tensor']}",
            f"--pipeline-parallel-size={engine['layout']['pipeline']}",
            # A data rank is an engine of its own to the parser; its ranks are of one host.
            f"--distributed-executor-backend={_backend(engine)}",
            *engine["arguments"],
        ]
        for engine in engines
        if engine["hosts"][0] == host
    }


def _backend(engine: Planned) -> str:
    """Return what vLLM calls the executor of an engine."""
    return "mp" if engine["executor"] == "dp" else str(engine["executor"])


def key_files(engines: Iterable[Planned], host: Host, api_key_file: str) -> dict[str, str]:
    """Return where on the controller the key lies that each serving process on a host reads."""
    return {
        f"{engine['name']}/key.yaml": api_key_file
        for engine in engines
        if host["name"] in {one.host for one in servers(engine)}
    }


def carry_over_files(engines: Iterable[Planned], host: Host) -> dict[str, str]:
    """Return the files that keep a host's own variables from being copied to other hosts."""
    text = json.dumps(sorted(KEPT_ON_THEIR_HOST), indent=1) + "\n"
    return {
        f"{engine['name']}/config/ray_non_carry_over_env_vars.json": text
        for engine in engines_on(engines, host["name"])
    }


def starting_ports(
    decision: Mapping[str, Any], host: str, engines: Iterable[Planned], check: bool = False
) -> dict[str, str]:
    """Return the ports that processes about to start on a host will take, and whose they are.

    In check mode those of a restart are left out: what it would have stopped still listens.
    """
    planned = {engine["name"]: engine for engine in engines}
    phases = decision["hosts"][host]
    steps = [
        step
        for phase in ("start_heads", "start_workers", "start_serve")
        for step in phases[phase]
        if not (check and decision["engines"][step["engine"]]["action"] == "restart")
    ]
    return {
        str(port): f"{step['name']} ({use})"
        for step in steps
        for port, use in _listened(planned[step["engine"]], step)
    }


def _listened(engine: Planned, step: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the ports that one process of an engine takes, and what each is for."""
    ranks = servers(engine)
    if is_apart(engine):
        grpc = [(ranks[0].port + GRPC, "gRPC")] if has_dynamo(engine) else []
        side = (side_channel(engine["ports"]), "KV side channel")
        return [(ranks[0].port, "api"), *grpc, side]
    if len(ranks) == 1:
        ports = engine["ports"]
        return [(ports[name], name.replace("_", " ")) for name in PORTS_OF[step["part"]]]
    (own,) = [one for one in ranks if one.name == step["name"]]
    # The first rank is where the others meet.
    master = [(engine["ports"]["gcs"], "data master")] if own.rank == 0 else []
    grpc = [(own.port + GRPC, "gRPC")] if has_dynamo(engine) else []
    return [(own.port, "api"), *grpc, *master]


def port_measurements(
    held: Sequence[Mapping[str, Any]], wanted: Mapping[str, str], host: str
) -> list[dict[str, Any]]:
    """Return one measurement for each planned port of a host; a listener on it is a stranger."""
    strangers = {str(one["port"]): one["who"] for one in held}
    return [
        {
            "what": f"port {port} for {process}",
            "ok": port not in strangers,
            "expected": "no other process listens there",
            "found": f"{strangers[port]} listens there" if port in strangers else "free",
            "where": f"{host}:{port}",
            "fix": "stop that process, or choose other ports: `port` of the engine for its API, "
            "port_base for all others",
        }
        for port, process in wanted.items()
    ]
