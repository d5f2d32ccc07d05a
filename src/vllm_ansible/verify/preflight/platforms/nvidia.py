"""NVIDIA's devices before an engine starts: errors, links, fabric, memory cells, versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.verify.preflight.check import (
    EVERYWHERE,
    FAIL,
    PASS,
    WARN,
    Check,
    Cluster,
    Row,
    release,
)
from vllm_ansible.verify.preflight.own import Device, Look, OwnChecks

CUDA = Check("cuda", "the CUDA release of the driver", "a driver refuses kernels of a later CUDA")
XID = Check("xid", "device errors in the kernel's log", "a device in error hangs all the others")
LINKS = Check("nvlinks", "the links between devices", "a link that is down slows every collective")
FABRIC = Check(
    "fabric", "the NVSwitch fabric", "without its manager every start ends in CUDA error 802"
)


def rows(host: str, look: Look, devices: list[Device], memory_errors: Check) -> list[Row]:
    """Return the rows of one host's health."""
    errors = _xid(host, look["kernel_log"])
    return [
        errors,
        _links(host, devices),
        _fabric(host, devices),
        _health(host, devices, memory_errors),
    ]


def count(cluster: Cluster, host: str, look: Look, check: Check) -> Row:
    """Return whether as many devices answer as the inventory counts on."""
    wanted = int(cluster.hosts[host]["accelerator_count"])
    opened = [device for device in look["devices"] if "error" not in device]
    told = look.get("error") or f"{len(opened)} of {len(look['devices'])} answer"
    verdict = PASS if len(opened) >= wanted and "error" not in look else FAIL
    fix = "nvidia-smi -L; lspci -d 10de: shows a card that the driver does not list; reboot once"
    return check.judged(verdict, host, f"{wanted} that answer", told, fix)


def installed(cluster: Cluster, hosts: Sequence[str]) -> list[Row]:
    """Return whether the drivers run what the engine is made for."""
    if not cluster.cuda:
        return [CUDA.skipped(EVERYWHERE, "which CUDA the engine is made for is not known")]
    found = []
    for host in hosts:
        version = str(cluster.looks[host].get("devices", {}).get("cuda", ""))
        has, wanted = release(version), release(cluster.cuda)
        # Within a major release kernels that are compiled run; those compiled at run time may not.
        verdict = PASS if has >= wanted else WARN if has[:1] == wanted[:1] else FAIL
        fix = f"install a driver for CUDA {cluster.cuda} or later"
        told = version or "the driver does not answer"
        found.append(CUDA.judged(verdict, host, f"{cluster.cuda} or later", told, fix))
    return found


def peer_memory(found: Look) -> tuple[str, str, str]:
    """Return what lets network cards reach the devices' memory: wanted, found, and the fix."""
    words = {"module": "nvidia_peermem", "open": "open kernel modules"}
    told = ", ".join(words[name] for name, there in found.items() if there)
    fix = "modprobe nvidia-peermem && echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf"
    return "nvidia_peermem, or open kernel modules (DMA-BUF)", told, fix


def _xid(host: str, log: Mapping[str, Any]) -> Row:
    if not log["readable"]:
        return XID.skipped(host, f"the kernel's log is closed to this user ({log['why']})")
    bad = [one for one in log["errors"] if one["verdict"] != "watch"]
    told = "; ".join(
        f"{one['kind']} {one['code']} on {one['pci']}, {one['times']} times: {one['meaning']}"
        for one in bad or log["errors"]
    )
    wanted = "none that asks for a reset, a reboot or a person"
    fixes = {
        "isolate": "take the host out of the group gpu and have the card looked at",
        "reboot": f"reboot {host}",
        "reset": f"nvidia-smi --gpu-reset -i {','.join(sorted({one['pci'] for one in bad}))}, idle",
    }
    fix = fixes.get(str(log.get("verdict")), "")
    return XID.judged(FAIL if bad else PASS, host, wanted, told or "none", fix)


def _links(host: str, devices: list[Device]) -> Row:
    if len(devices) < 2:
        return LINKS.skipped(host, "one device has nothing to be linked with")
    links = {device["index"]: device.get("nvlinks") or [] for device in devices}
    if not any(links.values()):
        return LINKS.skipped(host, "these devices have no NVLink")
    most = max(len(one) for one in links.values())
    active = {index: sum(link["active"] for link in one) for index, one in links.items()}
    bad = [index for index, count in active.items() if count < most]
    told = "; ".join(f"device {index}: {active[index]} of {most} active" for index in bad)
    fix = "nvidia-smi nvlink --status; reset the idle devices, then have the card looked at"
    found = told or f"{most} active on each"
    return LINKS.judged(FAIL if bad else PASS, host, "all of them active", found, fix)


def _fabric(host: str, devices: list[Device]) -> Row:
    states = {one["index"]: one["fabric"] for one in devices if one.get("fabric")}
    states = {index: one for index, one in states.items() if one["state"] != "not supported"}
    if not states or len(devices) < 2:
        return FABRIC.skipped(host, "no fabric that joins devices here")
    bad = [index for index, one in states.items() if one["state"] != "completed" or one["status"]]
    told = "; ".join(f"device {index}: {states[index]['state']}" for index in bad)
    fix = "systemctl restart nvidia-fabricmanager; its version must be the driver's"
    found = told or "completed on each"
    return FABRIC.judged(FAIL if bad else PASS, host, "completed", found, fix)


def _health(host: str, devices: list[Device], check: Check) -> Row:
    broken, noted = [], []
    for device in devices:
        remapped, ecc = device.get("remapped_rows") or {}, device.get("ecc_errors") or {}
        for name in ("pending", "failed"):
            if remapped.get(name):
                broken.append(f"device {device['index']}: remapping of rows {name}")
        if ecc.get("uncorrected_since_boot"):
            count = ecc["uncorrected_since_boot"]
            noted.append(f"device {device['index']}: {count} uncorrected errors since boot")
    if not any("ecc_errors" in one or "remapped_rows" in one for one in devices):
        return check.skipped(host, "these devices do not count memory errors")
    verdict = FAIL if broken else WARN if noted else PASS
    fix = "reset the idle device to remap its rows; where that failed, have the card replaced"
    wanted = "no row to be remapped, no uncorrected error since boot"
    return check.judged(verdict, host, wanted, "; ".join(broken + noted) or "none", fix)


CHECKS = OwnChecks(
    devices=(XID, LINKS, FABRIC),
    versions=(CUDA,),
    count=count,
    rows=rows,
    installed=installed,
    peer_memory=peer_memory,
    who="nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
    driver_fix="install the most common version on the others and hold it: "
    "apt-mark hold 'nvidia-*'",
)
