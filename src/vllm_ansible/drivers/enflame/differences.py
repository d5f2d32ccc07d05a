"""What is wrong with Enflame's driver on a host, in the order in which it is mended."""

from __future__ import annotations

from collections.abc import Callable

from vllm_ansible.drivers.enflame.difference import (
    INSTALL,
    LOAD,
    RELOAD,
    Difference,
    Look,
    Mend,
    Wanted,
)
from vllm_ansible.verify.preflight.check import release


def differences(look: Look, wanted: Wanted) -> list[Difference]:
    """Return every difference; none where the bus shows no device."""
    if not look["present"]:
        return []
    # One state of the module hides the next: what is not installed is not loaded either.
    states: tuple[Callable[[Look, Wanted], Difference | None], ...] = (
        _half_installed,
        _missing,
        _other_kernel,
        _older,
        _not_loaded,
        _other_loaded,
        _silent,
    )
    first = next((one for state in states if (one := state(look, wanted))), None)
    found = [first] if first else []
    if peer := _peer_memory(look, wanted):
        found.append(peer)
    return found


def _half_installed(look: Look, wanted: Wanted) -> Difference | None:
    del wanted
    if look["begun"]:
        version = look["begun"]["version"] or "an unknown version"
        return Difference(
            "half-installed",
            "the driver's installer ended well",
            "no installation that was begun and not ended",
            f"a run began to install {version} and did not end",
            INSTALL,
        )
    # One that is there and does not answer is a sick device's, which no installation heals.
    if look["loaded"] and not look["tool_installed"]:
        return Difference(
            "half-installed",
            "the driver came with its tools",
            "efsmi beside the module",
            f"driver {look['loaded']} is loaded, and efsmi was not found",
            INSTALL,
        )
    return None


def _missing(look: Look, wanted: Wanted) -> Difference | None:
    if look["installed"] or look["loaded"] or look["other_kernels"]:
        return None
    return Difference(
        "driver-missing",
        "Enflame's driver is installed",
        f"driver {wanted.version or 'of any version'}",
        f"none, and {len(look['devices'])} device(s) on the bus",
        INSTALL,
    )


def _other_kernel(look: Look, wanted: Wanted) -> Difference | None:
    del wanted
    if look["installed"] or look["loaded"] or not look["other_kernels"]:
        return None
    return Difference(
        "other-kernel",
        "the driver was built for the running kernel",
        f"a module for {look['kernel']}",
        f"modules for {', '.join(look['other_kernels'])} alone",
        INSTALL,
    )


def _older(look: Look, wanted: Wanted) -> Difference | None:
    version = look["installed"] or look["loaded"]
    if not wanted.version or release(version) >= release(wanted.version):
        return None
    return Difference(
        "older",
        "the driver is recent enough",
        f"{wanted.version} or later",
        version,
        INSTALL,
    )


def _not_loaded(look: Look, wanted: Wanted) -> Difference | None:
    del wanted
    if look["loaded"]:
        return None
    return Difference(
        "not-loaded",
        "the driver is loaded",
        f"driver {look['installed']} in the kernel",
        "installed, and not loaded",
        LOAD,
    )


def _other_loaded(look: Look, wanted: Wanted) -> Difference | None:
    del wanted
    if not look["installed"] or look["loaded"] == look["installed"]:
        return None
    return Difference(
        "other-loaded",
        "the installed driver is the loaded one",
        f"driver {look['installed']} in the kernel",
        f"driver {look['loaded']} in the kernel",
        RELOAD,
    )


def _silent(look: Look, wanted: Wanted) -> Difference | None:
    on_bus, answering = len(look["devices"]), look["answering"]
    if answering >= (min(wanted.devices, on_bus) or on_bus):
        return None
    # A reset ends whatever computes: only a person asks for it.
    fix = (
        "read `dmesg`; then, with nothing running: ansible-playbook "
        "playbooks/reset_devices.yml --limit HOST"
    )
    if answering:
        fix += f"; or run without the silent devices: set accelerator_count: {answering} for HOST"
    listed = f"{answering} that efsmi lists, {on_bus - answering} silent"
    return Difference(
        "silent",
        "every device answers",
        f"{on_bus} devices, as the bus shows",
        listed if look["tool"] else "efsmi does not answer",
        fix=fix,
    )


def _peer_memory(look: Look, wanted: Wanted) -> Difference | None:
    if not wanted.peer_memory or not look["rdma"] or look["peer_memory"]:
        return None
    mend = Mend()
    if look["peer_installed"]:
        mend = LOAD
    elif wanted.brings_peer_memory:
        mend = INSTALL
    return Difference(
        "peer-memory",
        "network cards reach device memory",
        "enflame_peer_mem beside RDMA devices",
        f"{len(look['rdma'])} RDMA device(s), and it is not loaded",
        mend,
        fix=""
        if mend
        else "run the vendor's enflame_peer_mem-x86_64-gcc-*.run as root, or give "
        "enflame_driver_file a TopsPlatform_*.run, which carries it",
    )
