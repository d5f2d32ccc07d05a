"""Whether NCCL used the way that this machine type has; a slower way that works is a failure.

What is right belongs to the machine type: sockets are healthy on plain Ethernet and a fault where
there is a fabric, and a missing network plugin is harmless except on EFA.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.frozen import frozen
from vllm_ansible.problem import Problem
from vllm_ansible.verify.collectives.transport import (
    EFA,
    INFINIBAND,
    NET,
    P2P,
    ROCE,
    SHM,
    SOCKET,
    Transport,
)

NAMES = {
    EFA: "EFA through libfabric",
    INFINIBAND: "InfiniBand (NET/IB)",
    ROCE: "RoCE (NET/IB)",
    SOCKET: "TCP sockets (NET/Socket)",
}
FIXES = {
    EFA: "install aws-ofi-nccl and have its lib directory in LD_LIBRARY_PATH of the processes that "
    "serve, show the efa devices to them, and pin NCCL_NET to the name that a good log prints "
    "after `Using network` (AWS Libfabric, of late Libfabric) so that falling back is an error",
    INFINIBAND: "show /dev/infiniband to the processes that serve, check `ibstat` (Active, "
    "LinkUp), remove NCCL_IB_DISABLE, and pin NCCL_NET=IB so that falling back is an error",
    ROCE: "show /dev/infiniband to the processes that serve, choose the RoCE v2 GID "
    "(NCCL_IB_GID_INDEX, often 3), and pin NCCL_NET=IB so that falling back is an error",
}
DIRECT_FIX = (
    "load nvidia-peermem (modprobe nvidia-peermem, and again after installing OFED), or use the "
    "open kernel modules with DMA-BUF"
)


@frozen
class ExpectedTransport:
    """What a machine type should use: the fabric, how many cards, and the way inside a node.

    `inside` lists the ways that are right; `direct` asks for GPUDirect RDMA across nodes.
    """

    fabric: str
    cards: int | None = None
    inside: tuple[str, ...] = (P2P, SHM)
    direct: bool = False


def inside_ways(accelerator: Accelerator, driver_name: str = "") -> tuple[str, ...]:
    """Return the ways that are right inside a node of such devices.

    Only devices behind a switch all reach each other (`NVLink 4`); bridged pairs, and cards of
    which the driver's name says PCIe or NVL, may rightly go through shared memory.
    """
    words = accelerator.link_name.split()
    switched = len(words) == 2 and words[0] == "NVLink" and accelerator.devices_per_node > 1
    bridged = any(word in driver_name.replace("-", " ").split() for word in ("PCIe", "PCIE", "NVL"))
    return (P2P,) if switched and not bridged else (P2P, SHM)


def problems(found: Transport, expected: ExpectedTransport, where: str = "") -> list[Problem]:
    """Return what is wrong with the transport, nothing when it is the expected one."""
    if not found.inside and not found.across:
        return [
            Problem(
                "NCCL's log names no channel, so its transport is unknown",
                expected="lines `Channel 00/0 : 0[0] -> 1[1] via ...`",
                found="none",
                where=where,
                fix="run the test with NCCL_DEBUG=INFO, and without a NCCL_DEBUG_SUBSYS that "
                "leaves INIT or P2P out",
            )
        ]
    return [*_inside(found, expected, where), *_across(found, expected, where)]


def _inside(found: Transport, expected: ExpectedTransport, where: str) -> list[Problem]:
    wrong = [(name, count) for name, count in found.inside if not _right(name, expected.inside)]
    if not wrong:
        return []
    ways = {name.split("/")[0] for name, _ in wrong}
    fix = "remove NCCL_P2P_DISABLE and NCCL_P2P_LEVEL from the environment; "
    if NET in ways:
        fix = "remove NCCL_SHM_DISABLE, make /dev/shm larger; " + fix
    return [
        Problem(
            f"inside a node NCCL uses {_ways(wrong)}",
            expected=" or ".join(expected.inside),
            found=_ways(found.inside) + _set(found, "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"),
            where=where,
            fix=fix + "check `nvidia-smi topo -m` and, for NVSwitch, that the fabric manager runs "
            "(nvidia-smi -q: Fabric, State Completed)",
        )
    ]


def _across(found: Transport, expected: ExpectedTransport, where: str) -> list[Problem]:
    if found.fabric is None or expected.fabric == SOCKET:
        return []
    told = f"{_ways(found.across)}, network {', '.join(found.networks) or 'not named'}"
    if found.provider:
        told += f", provider {found.provider} (found {found.nics} nics)"
    if found.fabric != expected.fabric:
        missing = expected.fabric == EFA and found.plugin_missing
        return [
            Problem(
                f"across nodes NCCL uses {NAMES.get(found.fabric, found.fabric)}",
                expected=NAMES[expected.fabric],
                found=told
                + (", and its network plugin libnccl-net.so was not found" if missing else "")
                + _set(found, "NCCL_NET", "NCCL_IB_DISABLE", "NCCL_NET_PLUGIN"),
                where=where,
                fix=FIXES[expected.fabric],
            )
        ]
    wrong = []
    count = found.nics if found.fabric == EFA else len(found.cards)
    if expected.cards and count is not None and count < expected.cards:
        wrong.append(
            Problem(
                f"NCCL uses {count} of {expected.cards} network cards",
                expected=f"{expected.cards} cards on this machine type",
                found=f"{count}: {', '.join(found.cards) or told}",
                where=where,
                fix="look for the missing cards with lspci and `ibstat` or `fi_info -p efa`; some "
                "appear late after boot; remove filters such as NCCL_IB_HCA",
            )
        )
    if expected.direct and (found.undirect or found.undirect_cards):
        wrong.append(
            Problem(
                f"{found.undirect} of {found.direct + found.undirect} channels across nodes go "
                "through host memory, without GPUDirect RDMA",
                expected="GDRDMA on every channel across nodes",
                found=", ".join(f"disabled for {card}" for card in found.undirect_cards) or told,
                where=where,
                fix=DIRECT_FIX,
            )
        )
    return wrong


def _right(name: str, ways: Sequence[str]) -> bool:
    """Return whether a way is right; NVLS and CollNet stand above the peers they use."""
    return name.split("/")[0] in (*ways, "NVLS", "COLLNET")


def _ways(ways: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} ({count} channels)" for name, count in ways)


def _set(found: Transport, *names: str) -> str:
    given = [f"{name}={value}" for name, value in found.settings if name in names]
    return f"; set: {', '.join(given)}" if given else ""
