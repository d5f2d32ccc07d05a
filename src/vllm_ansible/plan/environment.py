"""The environment of an engine's processes: what each host needs, and what must stay on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.accelerators.platform import device_variables, platform
from vllm_ansible.node.process import process
from vllm_ansible.plan.fabric import host_environment
from vllm_ansible.plan.planned_engine import PlannedEngine

# vLLM's Ray executor hands the driver's whole environment to every worker that lacks a name
# (vllm/v1/executor/ray_env_utils.py), the older one overwrites (vllm/ray/ray_env.py). Names in
# <VLLM_CONFIG_ROOT>/ray_non_carry_over_env_vars.json stay where they are.
KEPT_ON_THEIR_HOST = (
    *device_variables(),
    "ENGINE_KEY_FILE",
    "GLOO_SOCKET_IFNAME",
    "HF_HOME",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HOME",
    "HUGGING_FACE_HUB_TOKEN",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LOGNAME",
    "NCCL_SOCKET_IFNAME",
    "NOTIFY_SOCKET",
    "OMP_NUM_THREADS",
    "PATH",
    "RAY_ADDRESS",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_TMPDIR",
    "TMPDIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TP_SOCKET_IFNAME",
    "TRITON_CACHE_DIR",
    "USER",
    "VLLM_API_KEY",
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT",
    "VLLM_HOST_IP",
    "VLLM_RPC_BASE_PATH",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
)
# What fetches refuses it before a name is looked up.
RAY_REPORTS_NOWHERE = "none:"


@dataclass(frozen=True)
class Room:
    """Where one engine lives on one host."""

    host: Mapping[str, Any]
    engine: PlannedEngine
    environment_dir: str
    # Of what is installed there: a repaired environment keeps its path.
    environment_fingerprint: str = ""
    # Of vLLM, empty where nobody knows.
    engine_version: str = ""
    # How containers run here, where the engine comes in an image; empty elsewhere.
    image: Mapping[str, Any] = field(default_factory=dict)
    # What an engine in an image of Apptainer has to be shown: its weights. Empty elsewhere.
    shown: str = ""
    # The directory that has NIXL, where prefill and decode are apart. Empty elsewhere.
    nixl: str = ""

    @property
    def engine_dir(self) -> str:
        """Return the directory of this engine's configuration and caches."""
        return f"{self.host['cluster_dir']}/engines/{self.engine.name}"

    @property
    def temporary_dir(self) -> str:
        """Return the short directory that holds Ray's sockets, whose paths have 107 bytes."""
        return f"{self.host['run_dir']}/{self.engine.index}"

    @property
    def files_dir(self) -> str:
        """Return the directory for temporary files, short since sockets are made there too."""
        return f"{self.host['run_dir']}/t{self.engine.index}"

    @property
    def config_dir(self) -> str:
        """Return the directory that VLLM_CONFIG_ROOT names."""
        return f"{self.engine_dir}/config"

    @property
    def key_file(self) -> str:
        """Return the file, readable by the service alone, that holds the API key."""
        return f"{self.engine_dir}/key.yaml"

    @property
    def ray_token_file(self) -> str:
        """Return the file that holds the token of the cluster's Ray."""
        return f"{self.host['cluster_dir']}/secrets/ray_token"


def node_environment(
    room: Room, devices: Sequence[int] | None = None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what every process of an engine needs on this host; nothing in it is secret.

    devices: of a process that has not all of the engine's on this host. more: what it needs beside;
    the engine's own variables come last.
    """
    host, engine = room.host, room.engine
    caches = f"{room.engine_dir}/cache"
    # Of an allocation, what its site_setup has set; of hosts with EFA, what keeps NCCL on it.
    contained = bool(room.image or room.shown)
    site = host_environment(host, contained=contained)
    environment = {
        **site,
        "DO_NOT_TRACK": "1",
        "GLOO_SOCKET_IFNAME": str(host["interface"]),
        "HF_HOME": f"{caches}/huggingface",
        # The service's home is the cluster's directory, in which it may not write.
        "HOME": caches,
        "HF_HUB_OFFLINE": "1",
        "NCCL_SOCKET_IFNAME": str(host["interface"]),
        "NO_COLOR": "1",
        "PATH": _path(room, _programs(room)),
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        # vLLM leaves rendezvous files in the temporary directory; here they go with the cluster.
        "TMPDIR": room.files_dir,
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "TP_SOCKET_IFNAME": str(host["interface"]),
        "TRANSFORMERS_OFFLINE": "1",
        "TRITON_CACHE_DIR": f"{caches}/triton",
        "VLLM_CACHE_ROOT": f"{caches}/vllm",
        "VLLM_CONFIG_ROOT": room.config_dir,
        "VLLM_HOST_IP": str(host["address"]),
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_RPC_BASE_PATH": room.files_dir,
        "XDG_CACHE_HOME": caches,
        "XDG_CONFIG_HOME": room.config_dir,
    }
    seen = engine.devices(str(host["name"])) if devices is None else devices
    return {
        **environment,
        **_accelerator_environment(room, seen),
        **({"ENGINE_BIND": room.shown} if room.shown else {}),
        **(more or {}),
        **engine.environment,
    }


def ray_environment(room: Room) -> dict[str, str]:
    """Return the environment of a Ray node; its workers inherit it."""
    return {
        **node_environment(room),
        **_loopback_only(room),
        # No option of `ray start` moves these two from 44217 and 44227; a host may have two Rays.
        "AUTOSCALER_METRIC_PORT": str(room.engine.ports.autoscaler_metrics),
        "DASHBOARD_METRIC_PORT": str(room.engine.ports.dashboard_metrics),
        # Without a mode Ray 2.60 invents a token on the head that its workers do not have.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": room.ray_token_file,
        # The default of 10 s is shorter than a first compilation.
        "RAY_CGRAPH_get_timeout": "300",
        "RAY_COLOR_PREFIX": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_TMPDIR": room.temporary_dir,
        "RAY_USAGE_STATS_ENABLED": "0",
        # That they are disabled is reported, too, unless there is no such place.
        "RAY_USAGE_STATS_REPORT_URL": RAY_REPORTS_NOWHERE,
    }


def added_since(room: Room) -> dict[str, str | None]:
    """Return what earlier releases set otherwise, None for what they did not set.

    What was added since comes with the next restart: it is no reason for one. What the engine's own
    variables say was never added.
    """
    found: dict[str, str | None] = {}
    if room.engine.ray_processes():
        found["RAY_USAGE_STATS_REPORT_URL"] = None
    if _programs(room) and "PATH" not in room.engine.environment:
        found["PATH"] = _path(room, ())
    return found


def _programs(room: Room) -> tuple[str, ...]:
    contained = bool(room.image or room.shown)
    return () if contained else platform(room.host["accelerator"]).programs


def _path(room: Room, programs: Sequence[str]) -> str:
    site = host_environment(room.host, contained=bool(room.image or room.shown))
    return ":".join([f"{room.environment_dir}/bin", site.get("PATH", process.PATH), *programs])


def _loopback_only(room: Room) -> dict[str, str]:
    """Return what keeps a one-host Ray on loopback, every port of it.

    Ray replaces 127.0.0.1 by the address of the default route, and then listens on all addresses
    (resolve_ip_for_localhost in ray/_private/services.py, 2.60), unless it takes the host for one
    on which clusters are not supported.
    """
    if str(room.host["address"]) != "127.0.0.1":
        return {}
    return {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def _accelerator_environment(room: Room, devices: Sequence[int]) -> dict[str, str]:
    """Return which devices a process may see, or how a CPU engine shares the cores."""
    visible = platform(room.host["accelerator"]).visible_devices
    if visible:
        return {visible: ",".join(str(device) for device in devices)}
    # Ranks that share the cores of a host must not each start a thread for every core, and one core
    # is the engine's own, which waits busily: a second thread on two made tokens 14 times as slow.
    ranks = max(
        len(room.engine.devices(str(room.host["name"]))),
        int(room.host.get("accelerator_count") or 1),
        1,
    )
    threads = max(1, (int(room.host.get("cores") or 1) - 1) // ranks)
    return {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
