"""What to look at on a host, from what is known of it and of its peers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.inventory.site_host import supervisor_dir
from vllm_ansible.node.process import process
from vllm_ansible.plan.processes import LIMITS
from vllm_ansible.verify.preflight.storage import CACHE

# Where an engine's own environment may put what it compiles, in place of the cluster's directory.
CACHE_VARIABLES = (
    "FLASHINFER_WORKSPACE_BASE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "VLLM_CACHE_ROOT",
    "XDG_CACHE_HOME",
)
# By these an engine finds what its kernels are compiled with.
PROGRAM_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "PATH")
# cu12 wheels carry the major release in the name, later ones do not.
RUNTIME = re.compile(r"^nvidia-cuda-runtime(?:-cu\d+)?==(\d+\.\d+)", re.MULTILINE)


def caches(cluster_dir: str, engines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return where each engine keeps what it compiles, by purpose."""
    found = {}
    for engine in engines:
        found[f"{CACHE}{engine['name']}"] = f"{cluster_dir}/engines/{engine['name']}/cache"
        environment = engine.get("environment") or {}
        for name in CACHE_VARIABLES:
            if name in environment:
                found[f"{CACHE}{engine['name']} {name}"] = str(environment[name])
    return found


def programs(
    host: Mapping[str, Any], engines: Sequence[Mapping[str, Any]], environment: str
) -> dict[str, dict[str, str]]:
    """Return the variables by which each engine finds programs on a host, by its name."""
    site = dict(host.get("site_environment") or {})
    usual = {**site, "PATH": f"{environment}/bin:{site.get('PATH', process.PATH)}"}
    found = {}
    for engine in engines:
        variables = {**usual, **(engine.get("environment") or {})}
        found[str(engine["name"])] = {
            name: str(variables[name]) for name in PROGRAM_VARIABLES if name in variables
        }
    return found


def request(
    host: Mapping[str, Any],
    hosts: Sequence[Mapping[str, Any]],
    engines: Sequence[Mapping[str, Any]],
    cluster: str,
    installed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the options of preflight_info for one host; hosts are the site_host of all.

    installed: the engine's environment. What an image holds is not looked at.
    """
    own = installed or {}
    shown = not own.get("image") and not own.get("apptainer")
    environment = str(own.get("directory", "")) if shown else ""
    kept = caches(str(host["cluster_dir"]), engines)
    service = str(host["service_user"]) if host["privileges"] == "root" else ""
    # Those who install write the first two, the service writes the others.
    writers = {"cluster": "", "models": "", "sockets": service, **dict.fromkeys(kept, service)}
    return {
        "accelerator": host["accelerator"],
        "cluster": cluster,
        "cluster_dir": host["cluster_dir"],
        "run_dir": supervisor_dir(host),
        "supervisor": host["supervisor"],
        "limits": LIMITS,
        "interface": host["interface"],
        "peers": {one["name"]: one["address"] for one in hosts if one["name"] != host["name"]},
        "directories": {
            "cluster": host["cluster_dir"],
            "models": host["models_dir"],
            "sockets": host["run_dir"],
            **kept,
        },
        "write_as": writers,
        "environment": environment,
        "programs": programs(host, engines, environment),
    }


def cuda_of(requirements: str) -> str:
    """Return the CUDA release that locked requirements are made for; empty if they name none."""
    found = RUNTIME.search(requirements)
    return found[1] if found else ""
