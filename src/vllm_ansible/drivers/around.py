"""What a driver needs around it: fabric manager, DCGM, GPUDirect, holds."""

from __future__ import annotations

import re

from vllm_ansible.accelerators.platforms.nvidia import branch
from vllm_ansible.drivers import packages as names
from vllm_ansible.drivers.difference import Difference, Look, Wanted
from vllm_ansible.drivers.mend import Mend
from vllm_ansible.drivers.state import foreign, lent, version

# Their switches are no PCI devices of the host (Fabric Manager user guide, "Supported platforms").
NVLINK_5 = re.compile(r"\bB[23]00\b")
# From this kernel on, open modules share device memory as DMA-BUF (GPU Operator, GPUDirect RDMA).
DMA_BUF_KERNEL = (5, 12)


def around(look: Look, wanted: Wanted) -> list[Difference]:
    """Return what differs beside the driver itself."""
    found = _fabric_manager(look) + _gpudirect(look)
    if wanted.manage:
        found += _dcgm(look, wanted) + _persistence(look)
    return found + _holds(look, wanted)


def needs_fabric_manager(look: Look) -> bool:
    """Tell whether this host's devices reach each other only once a fabric manager has run."""
    several = len(look["devices"]) > 1
    return look["switches"] > 0 or (several and any(NVLINK_5.search(m) for m in look["models"]))


def _fabric_manager(look: Look) -> list[Difference]:
    if not needs_fabric_manager(look) or lent(look):
        return []
    driver = version(look)
    installed = names.fabric_manager(look["packages"])
    if foreign(look) and look["services"].get("nvidia-fabricmanager", {}).get("active"):
        return []  # it refuses a driver of another version by itself
    wanted = names.fabric_manager_name(look["manager"], driver)
    if driver in installed.values():
        return _service(look, "nvidia-fabricmanager", "fabric-manager-stopped", "fabric manager")
    # A distribution may name the same thing another way: nvidia-fabricmanager-580.
    own = f"{wanted}-{branch(driver)}"
    name = own if own in installed else wanted
    return [
        Difference(
            "fabric-manager-version" if installed else "fabric-manager-missing",
            "the fabric manager has the driver's version",
            driver,
            ", ".join(installed.values()) or f"none, with {look['switches']} switches on the bus",
            Mend(
                install=(names.at_version(look["manager"], name, driver),),
                enable=("nvidia-fabricmanager",),
            ),
        )
    ]


def _service(look: Look, service: str, identifier: str, what: str) -> list[Difference]:
    """Return a difference for a service that does not run, or will not after the next boot."""
    state = look["services"].get(service, {"active": False, "enabled": False})
    if state["active"] and state["enabled"]:
        return []
    # None of them starts without the kernel module that fits it: a boot comes first.
    later = look["module"]["loaded"] != version(look)
    if later and state["enabled"]:
        return []
    return [
        Difference(
            identifier,
            f"the {what} running",
            f"{service} runs and starts at boot",
            "runs, not enabled" if state["active"] else "does not run",
            Mend(enable=(service,)) if later else Mend(start=(service,)),
        )
    ]


def _dcgm(look: Look, wanted: Wanted) -> list[Difference]:
    if not wanted.dcgm:
        return []
    if names.dcgm(look["packages"]):
        return _service(look, "nvidia-dcgm", "dcgm-stopped", "monitor DCGM")
    package = names.dcgm_name(version(look))
    return [
        Difference(
            "dcgm-missing",
            "the monitor DCGM",
            package,
            "none",
            Mend(install=(package,), enable=("nvidia-dcgm",)),
        )
    ]


def _persistence(look: Look) -> list[Difference]:
    """Return a difference where the daemon came with the driver and does not run."""
    if not look["services"].get("nvidia-persistenced", {}).get("exists"):
        return []
    return _service(look, "nvidia-persistenced", "persistence-stopped", "persistence daemon")


def _gpudirect(look: Look) -> list[Difference]:
    module = look["module"]
    if not look["rdma"] or look["peer_memory"] or not module["loaded"]:
        return []
    kernel = names.parts(look["kernel"])[:2]
    if module["flavour"] == "open" and kernel >= DMA_BUF_KERNEL:
        return []
    return [
        Difference(
            "gpudirect",
            "network cards reach device memory",
            "open kernel modules on kernel 5.12 or newer (DMA-BUF), or nvidia-peermem",
            f"{module['flavour']} modules on kernel {look['kernel']}, no peer memory module; "
            f"cards {', '.join(look['rdma'])}",
            Mend(modules=("nvidia-peermem",)),
        )
    ]


def _holds(look: Look, wanted: Wanted) -> list[Difference]:
    loose = names.unheld(look["packages"])
    # What nobody upgrades unasked cannot change under a running engine.
    if not loose or not (wanted.manage or look["unattended"]):
        return []
    return [
        Difference(
            "unheld",
            "the driver is held against upgrades",
            "every package of it held",
            "free to change: " + ", ".join(loose),
            Mend(hold=tuple(loose)),
        )
    ]
