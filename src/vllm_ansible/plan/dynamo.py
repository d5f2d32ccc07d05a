"""NVIDIA Dynamo before data ranks, or before a set: what may have it, its ports, its processes."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vllm_ansible.accelerators.platform import platform
from vllm_ansible.node.kv_routing import REPEATS
from vllm_ansible.plan.roles import DECODE, PREFILL
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError, Problem

ROUTER, DYNAMO = "router", "dynamo"
# The first is what an engine has that says nothing of it.
FRONTS = (ROUTER, DYNAMO)
# What the plan gives the engines of a set whose Dynamo is at another engine of it.
BEHIND = "behind-dynamo"
LOOPBACK = "127.0.0.1"

# Of the engine's own block, where an engine without data ranks has its Ray. The last one only where
# sidecars of other hosts answer the frontend.
ETCD, NATS, FRONTEND, RESPONSES = 1, 2, 3, 4
# Each rank has a port of the part for data ranks, and one of each of these; so much further on.
GRPC, SYSTEM, REQUESTS = 20, 40, 60
MOST_RANKS = 20

Engine = Mapping[str, Any]
Processes = Mapping[str, Mapping[str, Any]]
NAME = re.compile(r"(.+)-(?:(dynamo|etcd|nats)|sidecar-\d+)")

# What the front needs of its engines, and what Dynamo does itself, by the beginning of a name.
TAKEN = {
    "grpc": "remove it: the port is the plan's",
    "kv_events_config": "remove it: the plan says where events go",
    "middleware": "remove it: vLLM's Rust front end has no middleware",
    "disable_log_stats": "remove it: the gate reads these counters",
    "no_enable_prefix_caching": "remove it, or leave out front: dynamo",
    "api_server_count": "remove it: vLLM's Rust front end is one process",
    "reasoning_parser": "remove it, or leave out front: dynamo, which parses answers itself",
    "tool_call_parser": "remove it, or leave out front: dynamo, which parses answers itself",
    "enable_auto_tool_choice": "remove it, or leave out front: dynamo",
    "chat_template": "remove it, or leave out front: dynamo, which fills the template itself",
}
SHORTEST = 4
# Of etcd's keys: each engine has an etcd of its own.
NAMESPACE = "vllm-ansible"
USER = "dynamo"
# Of a prompt of four whole blocks and more.
HIT_BLOCKS = 2


def front_refusals(
    item: Mapping[str, Any], layout: Layout | None
) -> Iterator[tuple[str, str, object, str]]:
    """Yield key, what was expected, what was found and the fix of what Dynamo cannot stand before.

    layout: None where the planner is to choose it, or where it was refused already.
    """
    if item.get("front") != DYNAMO:
        return
    data = layout.data if layout else 1
    apart = item.get("role") in (PREFILL, DECODE)
    if data == 1 and not apart and not (layout is None and item.get("executor") == "dp"):
        yield (
            "front",
            "two or more data ranks: with one server a KV-aware router has nothing to choose",
            f"{DYNAMO} with layout {item.get('layout', 'auto')}",
            "write layout: {data: 2, tensor: N}, two engines of half the devices in place of one, "
            "or remove front",
        )
    if data > MOST_RANKS:
        yield (
            "front",
            f"at most {MOST_RANKS} data ranks, each with four ports of the engine's block",
            f"{data} data ranks",
            "make tensor larger and data smaller, or write a second engine",
        )
    given = item.get("vllm_args")
    for key, value in given.items() if isinstance(given, Mapping) else ():
        name = str(key).lstrip("-").replace("-", "_").partition(".")[0]
        taken = next(
            (
                one
                for one in TAKEN
                if one == name or (len(name) >= SHORTEST and one.startswith(name))
            ),
            "grpc" if name.startswith("grpc") else "",
        )
        if name == "enable_prefix_caching" and not value:
            taken = "no_enable_prefix_caching"
        if taken:
            yield "vllm_args", "no argument that front: dynamo rules out", key, TAKEN[taken]


def refuse_rank(name: str, accelerator: str, version: str, image: bool, joined: bool) -> None:
    """Refuse Dynamo before servers that have no gRPC, or are not started from an environment."""
    found = ""
    if refused := platform(accelerator).no_dynamo:
        found = refused
    elif version and _older(version):
        found = f"vLLM {version}"
    elif image:
        found = "an engine in an image"
    elif joined:
        found = "data ranks of a mixture of experts, which step together"
    if found:
        raise PlanError(
            Problem(
                f"engine {name} cannot have front: dynamo: {found}",
                expected="vLLM 0.32 or later from a wheel, with data ranks that are independent "
                "(a dense model)",
                found=found,
                where=f"engines {name}.front",
                fix="remove front: the router stands before such ranks",
            )
        )


def refuse_paths(name: str, front: str, paths: Mapping[str, str]) -> None:
    """Refuse a model at a path of its own on each host: the frontend reads it at a sidecar's."""
    if front != DYNAMO or len(set(paths.values())) == 1:
        return
    raise PlanError(
        Problem(
            f"engine {name} has front: dynamo, and its model is not at one path of its hosts",
            expected="one path, at which Dynamo's frontend reads the tokenizer",
            found=", ".join(f"{host}: {path}" for host, path in paths.items()),
            where="models_dir",
            fix="write one models_dir for all hosts of the engine, or an absolute path as model, "
            "or remove front",
        )
    )


def _older(version: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) < (0, 32)


def has_dynamo(engine: Engine) -> bool:
    """Tell whether Dynamo sends requests to the servers of an engine of a plan."""
    return engine.get("front") in (DYNAMO, BEHIND)


def has_frontend(engine: Engine) -> bool:
    """Tell whether a Dynamo belongs to an engine of a plan: of a set to its first decode engine."""
    return engine.get("front") == DYNAMO


def rank_address(engine: Engine, address: str) -> str:
    """Return where the ranks of an engine listen on a host of this address.

    vLLM's gRPC has neither key nor TLS, and follows the address of its HTTP.
    """
    return LOOPBACK if has_dynamo(engine) else address


def events_socket(files_dir: str, rank: int) -> str:
    """Return the socket of a rank's KV events: only its user may open what lies there."""
    return f"{files_dir}/kv{rank}.sock"


def rank_words(files_dir: str, port: int, rank: int, role: str = "") -> list[str]:
    """Return what makes a server one that a sidecar of Dynamo can stand beside."""
    grpc = ["--grpc-port", str(port + GRPC)]
    if role == DECODE:
        # It is chosen by its load: what it holds came from a prefill engine.
        return grpc
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        # vLLM binds what is ipc:// and connects to a host's address, where nobody listens.
        "endpoint": f"ipc://{events_socket(files_dir, rank)}",
    }
    return [*grpc, "--kv-events-config", json.dumps(events)]


def server_environment(front: str) -> dict[str, str]:
    """Return what a server of this front needs in its environment."""
    return {"VLLM_USE_RUST_FRONTEND": "1"} if front in (DYNAMO, BEHIND) else {}


def told(
    engine: Engine, ranks: Sequence[Mapping[str, Any]], addresses: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what the role is told of the Dynamo of an engine.

    ranks: rank, host, name and port of each of its servers; of a set also engine and role.
    addresses: on the data plane, by host. All is on loopback where all is on one host.
    """
    name, block = str(engine["name"]), int(engine["ports"]["gcs"])
    hosts = [str(host) for host in engine["hosts"]]

    def plane(host: str) -> str:
        return (addresses or {}).get(host, "") if len(hosts) > 1 else LOOPBACK

    return {
        "process": f"{name}-dynamo",
        "host": hosts[0],
        "address": plane(hosts[0]),
        "responses": block + RESPONSES if len(hosts) > 1 else 0,
        "etcd": {"process": f"{name}-etcd", "port": block + ETCD},
        "nats": {"process": f"{name}-nats", "port": block + NATS},
        "port": block + FRONTEND,
        "url": f"http://{LOOPBACK}:{block + FRONTEND}",
        "sidecars": [
            {
                "process": f"{one.get('engine') or name}-sidecar-{one['rank']}",
                "engine": str(one["name"]),
                "role": str(one.get("role") or ""),
                "host": str(one["host"]),
                "address": plane(str(one["host"])),
                "server": f"http://{LOOPBACK}:{one['port']}",
                "grpc": one["port"] + GRPC,
                "system": one["port"] + SYSTEM,
                "requests": one["port"] + REQUESTS,
            }
            for one in ranks
        ],
    }


def is_spread(wanted: Mapping[str, Any]) -> bool:
    """Tell whether one Dynamo has engines on several hosts."""
    return bool(wanted["responses"])


def _on(wanted: Mapping[str, Any], host: str) -> tuple[bool, list[Mapping[str, Any]]]:
    """Return whether a host has stores and frontend of one Dynamo, and its sidecars there."""
    return wanted["host"] == host, [one for one in wanted["sidecars"] if one["host"] == host]


def process_names(wanted: Mapping[str, Any], host: str) -> list[str]:
    """Return the processes of one Dynamo on a host, in the order of their start."""
    first, beside = _on(wanted, host)
    sidecars = [str(one["process"]) for one in beside]
    if not first:
        return sidecars
    return [wanted["etcd"]["process"], wanted["nats"]["process"], *sidecars, wanted["process"]]


def ports(wanted: Mapping[str, Any], host: str) -> dict[int, str]:
    """Return the ports that one Dynamo listens on at a host, and which process does."""
    first, beside = _on(wanted, host)
    found: dict[int, str] = {}
    if first:
        found = {
            int(wanted["etcd"]["port"]): wanted["etcd"]["process"],
            int(wanted["nats"]["port"]): wanted["nats"]["process"],
            int(wanted["port"]): wanted["process"],
        }
        found |= {wanted["responses"]: wanted["process"]} if is_spread(wanted) else {}
    for one in beside:
        found |= {one["system"]: one["process"], one["requests"]: one["process"]}
    return found


def starting_ports(wanted: Mapping[str, Any], processes: Processes, host: str) -> dict[str, str]:
    """Return the ports of those processes of one Dynamo on a host that do not run yet."""
    return {
        str(port): name
        for port, name in ports(wanted, host).items()
        if not processes.get(name, {}).get("running")
    }


def strays(processes: Processes, engines: Iterable[Engine], host: str) -> list[str]:
    """Return the recorded processes of Dynamo on a host that its plan has none of."""
    planned: set[str] = set()
    for _, one in _of_host(list(engines), host):
        planned |= set(process_names(one, host))
    found = [
        name
        for name, record in processes.items()
        if not record["engine"] and NAME.fullmatch(name) and name not in planned
    ]
    return sorted(found, key=lambda name: (is_store(name), name))


def is_store(process: str) -> bool:
    """Tell whether others are registered with a process: it ends after them."""
    return process.endswith(("-etcd", "-nats"))


def removal(names: Iterable[str]) -> list[dict[str, str]]:
    """Return the steps that stop and forget processes of Dynamo."""
    return [{"name": name, "engine": "", "state": "absent"} for name in names]


def steps(
    wanted: Mapping[str, Any],
    place: Mapping[str, str],
    processes: Processes,
    user: str | None,
    lock: str,
) -> dict[str, list[dict[str, Any]]]:
    """Return the processes of one Dynamo as `engine_phase` takes them.

    `stores` are etcd and NATS, `sidecars` one for each rank of this host, `front` the frontend.
    place: host, python and start of the program that gives each its password, run_dir, etcd, nats
    and dynamo (the Python of its environment); of several hosts also secrets, a digest of what they
    share. lock: digest of what is installed there.
    """
    first, beside = _on(wanted, place["host"])
    shared = {"secrets": place["secrets"]} if is_spread(wanted) else {}
    start = (place["python"], "-s", "-E", place["start"], place["run_dir"])
    dynamo = (*start, "other", place["dynamo"], "-m")

    def step(name: str, argv: Sequence[str], more: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "name": name,
            "engine": "",
            "state": "started",
            "argv": list(argv),
            "environment": {},
            "limits": {"nofile": "65536"},
            "user": user,
            "restart": True,
            **more,
        }

    etcd_url = f"http://{wanted['address']}:{wanted['etcd']['port']}"
    front = _environment(wanted, place["run_dir"], wanted["address"])
    between: dict[str, str] = {}
    if is_spread(wanted):
        between = _between_hosts(place["configuration"])
        front |= {**between, "DYN_TCP_RESPONSE_STREAM_PORT": str(wanted["responses"])}
    nats = (*start, "other", place["nats"], "-c", f"{place['configuration']}/nats.conf")
    frontend = (
        *dynamo,
        "dynamo.frontend",
        "--router-mode=kv",
        f"--http-host={LOOPBACK}",
        f"--http-port={wanted['port']}",
        f"--namespace={NAMESPACE}",
        # A stream whose engine or sidecar is lost goes on at another one.
        "--migration-limit=3",
    )
    return {
        "stores": [
            step(wanted["etcd"]["process"], (*start, "etcd", place["etcd"], etcd_url), {}),
            step(
                wanted["nats"]["process"],
                nats,
                {"depends": {"configuration": nats_configuration(wanted)}},
            ),
        ]
        if first
        else [],
        "sidecars": [
            step(
                one["process"],
                (
                    *dynamo,
                    "dynamo.vllm.sidecar",
                    f"--grpc-endpoint={LOOPBACK}:{one['grpc']}",
                    f"--namespace={NAMESPACE}",
                    *_role_words(one["role"]),
                ),
                {
                    "environment": {
                        **_environment(wanted, place["run_dir"], one["address"]),
                        **between,
                        "DYN_SYSTEM_PORT": str(one["system"]),
                        "DYN_TCP_RPC_PORT": str(one["requests"]),
                    },
                    # It subscribes to the events of one start of its engine.
                    "depends": {
                        "lock": lock,
                        "engine": processes.get(one["engine"], {}).get("instance") or "",
                        **shared,
                    },
                },
            )
            for one in beside
        ],
        "front": [
            step(
                wanted["process"],
                frontend,
                {"environment": front, "depends": {"lock": lock, **shared}},
            )
        ]
        if first
        else [],
    }


def _role_words(role: str) -> tuple[str, ...]:
    """Return what a sidecar of a set is started with; the frontend finds prefill by its name."""
    if role == PREFILL:
        return ("--component=prefill", "--disaggregation-mode=prefill")
    return ("--disaggregation-mode=decode",) if role == DECODE else ()


def nats_configuration(wanted: Mapping[str, Any]) -> str:
    """Return the configuration of NATS, which reads the password from its environment."""
    return (
        f"listen: {wanted['address']}:{wanted['nats']['port']}\n"
        f"authorization {{ user: {USER}, password: $DYNAMO_PASSWORD }}\n"
        "max_payload: 8MB\n"
    )


def _environment(wanted: Mapping[str, Any], run_dir: str, address: str) -> dict[str, str]:
    """Return what frontend and sidecars have in their environment; nothing in it is secret.

    address: where the process listens.
    """
    hosts = ("DYN_TCP_RPC_HOST", "DYN_EVENT_PLANE_HOST", "DYN_TCP_RESPONSE_STREAM_HOST")
    return {
        # Left to themselves they take the first address of the host.
        **dict.fromkeys(hosts, address),
        # A sidecar's own pages can pause its engine, and ask for no key.
        "DYN_SYSTEM_HOST": LOOPBACK,
        "DO_NOT_TRACK": "1",
        "DYN_DISABLE_FRONTEND_ADMIN_API": "1",
        # Clients would choose engines.
        "DYN_DISABLE_FRONTEND_NVEXT": "1",
        "DYN_DISCOVERY_BACKEND": "etcd",
        # With ZeroMQ each sidecar would listen for events at every address.
        "DYN_EVENT_PLANE": "nats",
        "DYN_LOG": "warn",
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
        "ETCD_AUTH_USERNAME": "root",
        "ETCD_ENDPOINTS": f"http://{wanted['address']}:{wanted['etcd']['port']}",
        # With the default of seconds, frontend and sidecars end when etcd is away (dynamo#3493).
        "ETCD_KEEPALIVE_TIMEOUT_SECONDS": "600",
        "ETCD_LEASE_TTL": "600",
        "HF_HUB_OFFLINE": "1",
        "HOME": run_dir,
        "NATS_AUTH_USERNAME": USER,
        "NATS_SERVER": f"nats://{wanted['address']}:{wanted['nats']['port']}",
        "TRANSFORMERS_OFFLINE": "1",
        "XDG_CACHE_HOME": run_dir,
    }


def _between_hosts(directory: str) -> dict[str, str]:
    """Return what lets frontend and sidecars of several hosts answer each other alone.

    One certificate that signs itself, with its key, is the server's and the client's of all. The
    frontend reads the tokenizer's files from the model on its own disk: a sidecar's pages, where it
    reads them otherwise, are on loopback of their host.
    """
    certificate, key = f"{directory}/tls.crt", f"{directory}/tls.key"
    prefix = "DYN_TCP_TLS"
    return {
        "DYN_SELF_HOST_METADATA": "0",
        f"{prefix}_CERT_PATH": certificate,
        f"{prefix}_KEY_PATH": key,
        f"{prefix}_CLIENT_CA_CERT_PATH": certificate,
        f"{prefix}_CA_CERT_PATH": certificate,
        f"{prefix}_CLIENT_CERT_PATH": certificate,
        f"{prefix}_CLIENT_KEY_PATH": key,
        f"{prefix}_SERVER_NAME": USER,
    }


def known_at(wanted: Mapping[str, Any]) -> list[str]:
    """Return where the sidecars of one Dynamo take requests, as its frontend lists them.

    One of a host that was replaced is listed until its lease ends.
    """
    return [f"{one['address']}:{one['requests']}" for one in wanted["sidecars"]]


def turns(wanted: Mapping[str, Any], seed: str) -> list[dict[str, Any]]:
    """Return the calls of kv_routing_check, in order, for engines of several hosts.

    Each engine's counters can be read on its host alone. seed: the same prompt in each call.
    """
    servers: dict[str, list[str]] = {}
    for one in wanted["sidecars"]:
        servers.setdefault(one["host"], []).append(one["server"])
    reads = [{"part": "hits", "host": host, "servers": own} for host, own in servers.items()]
    asks = [
        {"part": "repeat" if number else "first", "host": wanted["host"], "number": number}
        for number in range(REPEATS + 1)
    ]
    everybody = [one["server"] for one in wanted["sidecars"]]
    return [
        {"servers": everybody, "number": 0, **one, "seed": seed}
        for ask in asks
        for one in (ask, *reads)
    ]


def looked(results: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `turns` have found, as one call of kv_routing_check finds it on one host."""
    hits: dict[tuple[str, str], int] = {}
    rounds: list[list[int]] = []
    found: dict[str, Any] = {}
    for one in results:
        item = one["item"]
        if one.get("failed") or one.get("unreachable") or one.get("reason"):
            why = one.get("reason") or one.get("msg") or "no answer"
            return {"reason": f"{item['host']}: {why}"}
        if item["part"] == "first":
            found = {key: value for key, value in one.items() if key != "item"}
        elif item["part"] == "hits":
            names = [(item["host"], server) for server in item["servers"]]
            hits |= dict(zip(names, one["hits"], strict=True))
            if len(hits) == len(wanted["sidecars"]):
                rounds.append([hits[side["host"], side["server"]] for side in wanted["sidecars"]])
                hits = {}
    pairs = itertools.pairwise(rounds)
    repeats = [[b - a for a, b in zip(one, two, strict=True)] for one, two in pairs]
    return {**found, "repeats": repeats}


def measurements(
    looked: Mapping[str, Any], wanted: Mapping[str, Any], where: str, logs: str
) -> list[dict[str, Any]]:
    """Return what must hold of a KV-aware router, of what kv_routing_check has found.

    logs: the directory that holds the logs of the processes.
    """
    ranks, reason = len(wanted["sidecars"]), str(looked.get("reason") or "")
    known = int(looked.get("workers") or 0)
    read = f"read {logs}/{wanted['process']}.log"
    sidecar = f"{logs}/{wanted['sidecars'][-1]['process']}.log"
    if len({one["host"] for one in wanted["sidecars"]}) > 1:
        sidecar += f" on {wanted['sidecars'][-1]['host']}"
    if reason or "repeats" not in looked:
        why = reason or str(looked.get("msg") or "nothing was asked")
        return [_one("an answer to each repeat of a prompt", False, "an answer", why, where, read)]
    block, events = int(looked["block_size"]), int(looked["events"])
    enough = HIT_BLOCKS * block
    repeats = [list(one) for one in looked["repeats"]]
    homes = [
        number
        for number in range(ranks)
        if repeats and block and all(one[number] >= enough for one in repeats)
    ]
    return [
        _known(ranks, known, where, f"{read} and {sidecar}"),
        _one(
            "KV events applied by the router",
            events > 0,
            "more applied events after a prompt that was not asked before",
            f"{events} more",
            where,
            f"read {logs}/{wanted['nats']['process']}.log and {sidecar}: events go from the engine "
            "over its sidecar and NATS to the frontend",
        ),
        _one(
            "a repeated prefix at the engine that has it in its cache",
            bool(homes),
            f"at least {enough} tokens of each repeat hit at one engine",
            f"tokens hit, by repeat and engine: {repeats}, of a prompt of "
            f"{looked.get('prompt_tokens')} and blocks of {block}",
            where,
            read,
        ),
    ]


def state_measurement(
    looked: Mapping[str, Any], wanted: Mapping[str, Any], where: str, logs: str
) -> dict[str, Any]:
    """Return what must hold of a Dynamo that was asked nothing: it knows every engine."""
    ranks, known = len(wanted["sidecars"]), int(looked.get("workers") or 0)
    logs_of = " and ".join(
        f"{logs}/{name}.log" for name in (wanted["process"], wanted["etcd"]["process"])
    )
    return _known(ranks, known, where, f"read {logs_of}; site.yml starts what does not run")


def state_summary(engine: str, looked: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return what a Dynamo that was asked nothing says of itself, as one line."""
    return (
        f"{engine}: Dynamo at {wanted['url']} sends requests to {looked.get('workers') or 0} of "
        f"{len(wanted['sidecars'])} engines, {looked.get('events') or 0} KV events applied so far"
    )


def running(
    processes: Processes,
    engines: Iterable[Engine],
    host: str,
    hosts: Iterable[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the engines of a host whose frontend runs, and what the role is told of it.

    hosts: site_host of every host of this run. Engines of another one are not known to Dynamo.
    """
    addresses = {str(one["name"]): str(one["address"]) for one in hosts}
    return [
        {"engine": str(engine["name"]), "dynamo": one}
        for engine, one in _of_host(list(engines), host, addresses)
        if one["host"] == host and processes.get(one["process"], {}).get("running")
    ]


def _of_host(
    engines: Sequence[Engine], host: str, addresses: Mapping[str, str] | None = None
) -> Iterator[tuple[Engine, dict[str, Any]]]:
    """Yield each engine with a part of its Dynamo on a host, and what the role is told of that."""
    for engine in engines:
        if not has_frontend(engine) or host not in engine["hosts"]:
            continue
        name = engine.get("served_name")
        others = [
            one for one in engines if one.get("front") == BEHIND and one["served_name"] == name
        ]
        ranks = [
            {
                "rank": rank,
                "host": _rank_host(one, rank),
                "port": int(one["ports"]["worker_first"]) + rank,
                "name": "",
                "engine": str(one["name"]),
                "role": one.get("role", ""),
            }
            for one in (engine, *others)
            for rank in range(int((one.get("layout") or {}).get("data", 1)))
        ]
        yield engine, told(engine, ranks, addresses)


def _rank_host(engine: Engine, rank: int) -> str:
    """Return the host of a data rank, which has all its devices there."""
    devices = engine.get("ranks") or ()
    first = rank * int((engine.get("layout") or {}).get("tensor", 1))
    return str(devices[first]["host"] if first < len(devices) else engine["hosts"][0])


def _known(ranks: int, known: int, where: str, fix: str) -> dict[str, str | bool]:
    what = "every engine known to Dynamo"
    return _one(what, known == ranks, f"{ranks} engines", f"{known}", where, fix)


def _one(
    what: str, ok: bool, expected: str, found: str, where: str, fix: str
) -> dict[str, str | bool]:
    return {
        "what": what,
        "ok": ok,
        "expected": expected,
        "found": found,
        "where": where,
        "fix": fix,
    }


def summary(engine: str, looked: Mapping[str, Any]) -> str:
    """Return what was found of an engine's Dynamo, as one line."""
    repeats = [list(one) for one in looked.get("repeats") or ()]
    hit = sum(max(one, default=0) for one in repeats)
    asked = int(looked.get("prompt_tokens") or 0) * len(repeats)
    share = f"{100 * hit / asked:.0f} %" if asked else "nothing"
    return (
        f"{engine}: Dynamo before {looked.get('workers', 0)} engines, "
        f"{looked.get('events', 0)} KV events applied, {share} of repeated prompts cached"
    )
