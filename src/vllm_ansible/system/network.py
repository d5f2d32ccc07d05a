"""Interfaces of the data plane, sockets of fast links, and the software of RDMA devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.system.judged import HEADER, Difference, File, Judged, Repair
from vllm_ansible.system.wants import Wants

SETTINGS = "/etc/sysctl.d/90-vllm-ansible-network.conf"
LOADED = "/etc/modules-load.d/90-vllm-ansible.conf"
RULES = "/etc/udev/rules.d/90-vllm-ansible.rules"
FAST_MBITS = 25_000
# A window of 64 MiB carries 25 Gbit/s over 20 ms; ESnet's figure for fast hosts
# (https://fasterdata.es.net/host-tuning/linux/). Zero leaves the kernel's own.
BUFFERS = {
    "net.core.rmem_max": (67108864,),
    "net.core.wmem_max": (67108864,),
    "net.ipv4.tcp_rmem": (0, 0, 33554432),
    "net.ipv4.tcp_wmem": (0, 0, 33554432),
}
LOOSE = 2


def judge(look: Mapping[str, Any], want: Wants, devices: Sequence[Mapping[str, Any]]) -> Judged:
    """Compare the data plane with what its links and devices need."""
    found = look["network"]
    settings: dict[str, str] = {}
    differences: list[Difference] = []
    commands: list[tuple[str, ...]] = []
    files: list[File] = []
    own = [one for one in found["interfaces"] if one["interface"] == want.interface]
    mine = own[0] if own else {}
    if mine and want.mtu and mine["mtu"] != want.mtu:
        differences.append(mtu(mine, want))
        files.append(File(RULES, f"{HEADER}{rule(mine, want.mtu)}\n"))
        link = ("ip", "link", "set", "dev", want.interface, "mtu", str(want.mtu))
        commands.append(link)
    for one in twins(found["interfaces"]):
        # Strict filtering drops what comes in by another interface of the same network than
        # the one the answer leaves by (RFC 3704; Documentation/networking/ip-sysctl.rst).
        if one["path_filter"] == 1:
            key = f"net.ipv4.conf.{one['interface'].replace('.', '/')}.rp_filter"
            differences.append(path_filter(one))
            settings[key] = str(LOOSE)
    if (mine.get("speed") or 0) >= FAST_MBITS:
        for name, wanted in BUFFERS.items():
            values = found["sysctls"].get(name)
            if values and any(value < least for value, least in zip(values, wanted, strict=True)):
                better = [max(pair) for pair in zip(values, wanted, strict=True)]
                settings[name] = " ".join(map(str, better))
                differences.append(buffer(name, values, settings[name], mine["speed"]))
    if settings:
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        files.append(File(SETTINGS, HEADER + lines))
        commands.append(("sysctl", "--load", SETTINGS))
    rdma = software(found, want) if devices else Judged()
    repair = Repair(
        packages=rdma.repair.packages,
        files=(*files, *rdma.repair.files),
        modules=rdma.repair.modules,
        commands=tuple(commands),
    )
    notes = (*fabric_notes(found, devices),)
    return Judged((*differences, *rdma.differences), notes, repair)


def twins(interfaces: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the interfaces that share a network with another one of the host."""
    real = [one for one in interfaces if one["kind"] not in ("loopback", "bridge")]
    return [
        one
        for one in real
        if len({two["interface"] for two in real if two["network"] == one["network"]}) > 1
    ]


def mtu(mine: Mapping[str, Any], want: Wants) -> Difference:
    """Return the difference of an interface's MTU."""
    return Difference(
        what=f"the MTU of {want.interface}",
        expected=f"{want.mtu} (system_network_mtu)",
        found=str(mine["mtu"]),
        fix=f"ip link set dev {want.interface} mtu {want.mtu}, on the switch too",
    )


def rule(mine: Mapping[str, Any], wanted: int) -> str:
    """Return a udev rule: it holds whatever brings interfaces up."""
    return (
        f'ACTION=="add", SUBSYSTEM=="net", ATTR{{address}}=="{mine["hardware"]}", '
        f'ATTR{{mtu}}="{wanted}"'
    )


def path_filter(one: Mapping[str, Any]) -> Difference:
    """Return the difference of an interface that filters strictly beside a twin."""
    return Difference(
        what=f"the reverse path filter of {one['interface']}",
        expected=f"{LOOSE} (loose): another interface is on {one['network']} too",
        found="1 (strict)",
        fix=f"sysctl -w net.ipv4.conf.{one['interface']}.rp_filter={LOOSE}",
    )


def buffer(name: str, values: Sequence[int], wanted: str, speed: int) -> Difference:
    """Return the difference of a socket buffer; it costs speed, not correctness."""
    return Difference(
        what=name,
        expected=f"{wanted} for a link of {speed / 1000:g} Gbit/s",
        found=" ".join(map(str, values)),
        fix=f"sysctl -w {name}='{wanted}'",
        needed=False,
    )


def software(found: Mapping[str, Any], want: Wants) -> Judged:
    """Compare modules and libraries with what programs need to use RDMA devices."""
    missing = tuple(sorted(name for name, loaded in found["modules"].items() if not loaded))
    differences = []
    if missing:
        differences.append(
            Difference(
                what="the kernel modules of RDMA",
                expected="ib_uverbs and rdma_ucm loaded",
                found=f"not loaded: {', '.join(missing)}",
                fix=f"modprobe --all {' '.join(missing)}",
            )
        )
    if not found["verbs"]:
        differences.append(
            Difference(
                what="the library of RDMA",
                expected="libibverbs, from rdma-core",
                found="none",
                fix=f"install {' '.join(packages(want))}",
            )
        )
    return Judged(
        tuple(differences),
        (),
        Repair(
            packages=packages(want) if not found["verbs"] else (),
            files=(File(LOADED, f"{HEADER}ib_uverbs\nrdma_ucm\n"),) if missing else (),
            modules=missing,
        ),
    )


def packages(want: Wants) -> tuple[str, ...]:
    """Return the packages that bring libibverbs and its drivers."""
    if want.red_hat:
        return ("rdma-core", "libibverbs")
    return ("rdma-core", "libibverbs1", "ibverbs-providers")


def fabric_notes(found: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what is only told: RoCE's address types, bridges and the IOMMU."""
    notes = []
    for device in devices:
        for port in device["ports"]:
            if port["link_layer"] == "Ethernet" and device["driver"] != "efa":
                kinds = ", ".join(port["gid_types"]) or "none"
                notes.append(
                    f"{device['name']} is RoCE with GID types {kinds}: it needs priority flow "
                    "control on the switch, which cannot be seen from here"
                )
    bridges = found["redirecting_bridges"]
    if bridges and devices:
        notes.append(
            f"access control services of {len(bridges)} PCI bridges ({', '.join(bridges[:3])}...) "
            "send traffic between cards through the processor; switch ACS off in the firmware"
        )
    if found["iommu"] and not found["iommu_passthrough"] and devices:
        notes.append("the IOMMU translates (no iommu=pt on the kernel's command line)")
    return tuple(notes)
