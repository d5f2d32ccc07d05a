"""What keeps NCCL on a host's fabric: given here once, to engines and to measurements alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.accelerators.platform import platform

LIBRARY_PATH = "LD_LIBRARY_PATH"
# Every release of aws-ofi-nccl answers to it: up to 1.11 it has this name, later ones take it when
# NCCL_NET asks for it (nvidia_plugin_name_fixup in src/nccl_ofi_interface_nvidia).
NETWORK = "AWS Libfabric"
# Of libnccl-net-ofi.so; where there is only libnccl-net.so, NCCL finds that by itself.
PLUGIN = "ofi"
PLUGIN_FILE = "libnccl-net-ofi.so"


def fabric_environment(host: Mapping[str, Any], mode: str, hosts: int) -> dict[str, str]:
    """Return the environment that has NCCL use EFA, or fail; empty where EFA is not for NCCL here.

    host: what host_info found on it, and what it computes with. mode: system_efa. hosts: of the
    whole cluster, whichever of them take part in a run. Without NCCL_NET and FI_PROVIDER, NCCL
    falls back to sockets and says so in its log alone.
    """
    efa = host.get("efa") or {}
    if mode == "skip" or hosts < 2 or not platform(host["accelerator"]).efa:
        return {}
    plugin = str(efa.get("plugin") or "")
    if not efa.get("cards") or not plugin or not efa.get("libfabric"):
        # `prepare` says what is missing; with these variables not even one host would serve.
        return {}
    directory, _, name = plugin.rpartition("/")
    return {
        "FI_PROVIDER": "efa",
        # Wheels of NCCL do not look where Amazon's installer puts its libraries.
        LIBRARY_PATH: f"{directory}:{efa['libfabric']}",
        "NCCL_NET": NETWORK,
        **({"NCCL_NET_PLUGIN": PLUGIN} if name == PLUGIN_FILE else {}),
    }


def host_environment(host: Mapping[str, Any], contained: bool = False) -> dict[str, str]:
    """Return what every process on a host has in its environment from its site and its fabric.

    host: site_host. contained: the process runs in an image, which has libraries of its own.
    """
    site = dict(host.get("site_environment") or {})
    fabric = dict(host.get("fabric_environment") or {})
    if contained or not fabric:
        return site
    before = site.get(LIBRARY_PATH)
    if before:
        fabric[LIBRARY_PATH] = f"{fabric[LIBRARY_PATH]}:{before}"
    return {**site, **fabric}
