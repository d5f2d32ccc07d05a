"""From a plan to the processes each host must run, in the order of their start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vllm_ansible.plan import dynamo
from vllm_ansible.plan.contained import contained, refuse_ray
from vllm_ansible.plan.dynamo import BEHIND, DYNAMO, LOOPBACK, rank_words, refuse_paths, refuse_rank
from vllm_ansible.plan.environment import Room, added_since, node_environment, ray_environment
from vllm_ansible.plan.pairs import refuse_place, server_environment, server_words
from vllm_ansible.plan.plan import Plan
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.process_spec import HEAD, SERVE, WORKER, ProcessSpec
from vllm_ansible.plan.rank_process import joined, rank_arguments, rank_environment
from vllm_ansible.plan.servers import serving
from vllm_ansible.problem import PlanError, Problem

LIMITS = {"memlock": "infinity", "nofile": "65536"}


def wanted_processes(
    plan: Plan,
    hosts: Mapping[str, Mapping[str, Any]],
    environments: Mapping[str, Mapping[str, Any]],
    models: Mapping[str, Mapping[str, Mapping[str, Any]]],
    fingerprints: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, tuple[ProcessSpec, ...]]:
    """Return the processes of every host in `hosts`, each list in the order of start.

    hosts: site_host by inventory name. environments: by host, directory, fingerprint and versions
    of the engine's environment; of an image also how it is run there. models: by host and entry,
    path and fingerprint of the weights, with several data ranks also experts and hidden size.
    fingerprints: by engine, anything else whose change means a restart. An engine none of whose
    hosts is given is left out; one of which only some are given is refused.
    """
    wanted: dict[str, list[ProcessSpec]] = {host: [] for host in hosts}
    for engine in plan.engines:
        absent = [host for host in engine.hosts if host not in hosts]
        if len(absent) == len(engine.hosts):
            continue
        if absent:
            raise PlanError(_split(engine, absent))
        depends = dict((fingerprints or {}).get(engine.name, {}))
        paths = {host: str(models[host][engine.entry]["path"]) for host in engine.hosts}
        rooms = [_room(hosts[host], engine, environments[host], paths[host]) for host in paths]
        refuse_ray(engine, rooms)
        refuse_paths(engine.name, engine.front, paths)
        for room in rooms:
            model = models[str(room.host["name"])][engine.entry]
            weights = {"weights": model.get("fingerprint", "")}
            for spec in _of_host(room, rooms, model, {**weights, **depends}):
                packed = contained(room, plan.cluster, model["path"], spec) if room.image else spec
                wanted[spec.host].append(packed)
    return {
        host: tuple(sorted(specs, key=lambda spec: (spec.order, spec.name)))
        for host, specs in wanted.items()
    }


def process_names(engine: str) -> tuple[str, str]:
    """Return the names of an engine's processes: its Ray node and its server."""
    return f"{engine}-ray", serving(engine)


def _room(
    host: Mapping[str, Any],
    engine: PlannedEngine,
    environment: Mapping[str, Any],
    weights: str,
) -> Room:
    """Return the place of an engine on one host."""
    version = str((environment.get("versions") or {}).get("vllm", ""))
    fingerprint = environment.get("fingerprint", "")
    image = environment.get("image") or {}
    # Ray's workers load them and are told of them by the server alone, which is another process.
    shown = weights if environment.get("apptainer") else ""
    nixl = str(environment.get("nixl") or "")
    in_image = bool(image or shown)
    refuse_place(engine.name, engine.role, in_image, nixl, str(host["name"]))
    return Room(host, engine, environment["directory"], fingerprint, version, image, shown, nixl)


def _split(engine: PlannedEngine, absent: list[str]) -> Problem:
    """Return the refusal to act on some hosts of an engine only."""
    return Problem(
        f"engine {engine.name} spans {', '.join(engine.hosts)}, and this run leaves out "
        f"{', '.join(absent)}",
        expected=f"all hosts of engine {engine.name}, or none",
        found=f"without {', '.join(absent)}",
        where="--limit",
        fix="add them to --limit, or run without it",
    )


def _of_host(
    room: Room, rooms: list[Room], model: Mapping[str, Any], depends: Mapping[str, Any]
) -> list[ProcessSpec]:
    """Return the processes of one engine on one host."""
    if room.engine.layout.data > 1:
        return _data_ranks(room, rooms, model, depends)
    first = room is rooms[0]
    ray, serve = process_names(room.engine.name)
    if _behind_dynamo(room):
        # Its experts are its own: no rank steps with another engine's.
        kind, image = str(room.host["accelerator"]), bool(room.image)
        refuse_rank(room.engine.name, kind, room.engine_version, image, joined=False)
    specs = []
    if room.engine.ray_processes():
        specs.append(
            _spec(room, ray, HEAD if first else WORKER, _ray(room, rooms), ray_environment(room))
        )
    if first or not room.engine.ray_processes():
        specs.append(
            _spec(
                room,
                serve,
                SERVE,
                _serve(room, rooms, model["path"]),
                _serve_environment(room, rooms),
                depends,
            )
        )
    return specs


def _data_ranks(
    room: Room, rooms: list[Room], model: Mapping[str, Any], depends: Mapping[str, Any]
) -> list[ProcessSpec]:
    """Return the data ranks of one engine on one host, each a server."""
    first = rooms[0].host
    if room.engine.front == DYNAMO:
        kind, image = str(room.host["accelerator"]), bool(room.image)
        refuse_rank(room.engine.name, kind, room.engine_version, image, joined(model))
    return [
        _spec(
            room,
            server.name,
            SERVE,
            (
                *_listening(room, model["path"], server.port),
                *rank_arguments(room, first, server, model),
                *room.engine.arguments,
            ),
            rank_environment(room, first, server, model),
            depends,
            alone=not joined(model),
        )
        for server in room.engine.servers()
        if server.host == room.host["name"]
    ]


def _spec(
    room: Room,
    name: str,
    part: str,
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    depends: Mapping[str, Any] | None = None,
    alone: bool = False,
) -> ProcessSpec:
    return ProcessSpec(
        host=str(room.host["name"]),
        name=name,
        engine=room.engine.name,
        part=part,
        argv=argv,
        environment=environment,
        depends={"environment": room.environment_fingerprint, **(depends or {})},
        limits=LIMITS,
        user=str(room.host.get("service_user") or "") or None,
        alone=alone,
        formerly=added_since(room),
    )


def _ray(room: Room, rooms: list[Room]) -> tuple[str, ...]:
    """Return the command of a Ray head, or of a worker that joins it."""
    ports, first = room.engine.ports, room is rooms[0]
    ranks = len(room.engine.devices(str(room.host["name"])))
    head = (
        "--head",
        f"--port={ports.gcs}",
        "--include-dashboard=true",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={ports.dashboard}",
        f"--ray-client-server-port={ports.client}",
    )
    join = (f"--address={_ray_address(rooms)}",)
    return (
        f"{room.environment_dir}/bin/ray",
        "start",
        "--block",
        *(head if first else join),
        f"--node-ip-address={room.host['address']}",
        f"--node-manager-port={ports.node_manager}",
        f"--object-manager-port={ports.object_manager}",
        f"--runtime-env-agent-port={ports.runtime_env_agent}",
        f"--dashboard-agent-listen-port={ports.dashboard_agent_listen}",
        f"--dashboard-agent-grpc-port={ports.dashboard_agent_grpc}",
        f"--metrics-export-port={ports.metrics}",
        f"--min-worker-port={ports.worker_first}",
        f"--max-worker-port={ports.worker_last}",
        f"--num-gpus={ranks}",
        # Ray starts an idle Python process for each CPU; vLLM's ranks ask for none.
        f"--num-cpus={ranks + 1}",
        f"--temp-dir={room.temporary_dir}",
        "--disable-usage-stats",
        "--log-style=record",
        "--log-color=false",
    )


def _ray_address(rooms: list[Room]) -> str:
    """Return where the Ray of this engine is joined."""
    return f"{rooms[0].host['address']}:{rooms[0].engine.ports.gcs}"


def _serve(room: Room, rooms: list[Room], model: str) -> tuple[str, ...]:
    """Return the command of the server, or of a rank that only follows one."""
    engine, first = room.engine, room is rooms[0]
    return (
        *_listening(room, model, engine.servers()[0].port if first else None),
        "--tensor-parallel-size",
        str(engine.layout.tensor),
        "--pipeline-parallel-size",
        str(engine.layout.pipeline),
        "--distributed-executor-backend",
        engine.executor,
        *_ranks(room, rooms),
        *server_words(engine.role),
        *_dynamo_words(room),
        *engine.arguments,
    )


def _behind_dynamo(room: Room) -> bool:
    return room.engine.front in (DYNAMO, BEHIND)


def _dynamo_words(room: Room) -> list[str]:
    """Return what a server of a set behind Dynamo has beside what its role asks for."""
    if not _behind_dynamo(room):
        return []
    port = room.engine.servers()[0].port
    return rank_words(room.files_dir, port, 0, room.engine.role)


def _listening(room: Room, model: str, port: int | None) -> tuple[str, ...]:
    """Return the command of a server as far as its address, or of a rank without one."""
    fronted = _behind_dynamo(room)
    address = LOOPBACK if fronted else str(room.host["address"])
    api = ("--host", address, "--port", str(port))
    key = ["--config", room.key_file]
    # vLLM alone answers completions without a key on paths outside /v1. Its Rust front end takes no
    # middleware; loopback guards what it leaves open.
    for middleware in () if fronted else ("access.Guard", "draining.Draining"):
        key += ["--middleware", f"vllm_guard.{middleware}"]
    return (
        f"{room.environment_dir}/bin/vllm",
        "serve",
        model,
        *((*key, *api) if port else ("--headless",)),
        "--served-model-name",
        room.engine.served_name,
    )


def _ranks(room: Room, rooms: list[Room]) -> tuple[str, ...]:
    """Return how the hosts of an engine without Ray find each other."""
    if room.engine.ray_processes() or len(rooms) == 1:
        return ()
    return (
        "--nnodes",
        str(len(rooms)),
        "--node-rank",
        str(rooms.index(room)),
        "--master-addr",
        str(rooms[0].host["address"]),
        "--master-port",
        str(room.engine.ports.master),
    )


def _serve_environment(room: Room, rooms: list[Room]) -> dict[str, str]:
    """Return the environment of a server: it must find its own Ray, not another engine's."""
    key = {"ENGINE_KEY_FILE": room.key_file} if room is rooms[0] else {}
    if not room.engine.ray_processes():
        ports = asdict(room.engine.ports)
        apart = server_environment(room.engine.role, room.host, ports, room.nixl)
        apart |= dynamo.server_environment(room.engine.front)
        return {**node_environment(room, more=apart), **key}
    return {**ray_environment(room), **key, "RAY_ADDRESS": _ray_address(rooms)}
