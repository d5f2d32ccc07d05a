"""Devices: as many and as capable as wanted, free, and in good health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.plan.estimate.memory.budget import default_utilization
from vllm_ansible.verify.preflight import enflame
from vllm_ansible.verify.preflight.check import (
    EVERYWHERE,
    FAIL,
    PASS,
    WARN,
    Check,
    Cluster,
    Row,
    gib,
)
from vllm_ansible.verify.preflight.check import equal as equal_row

COUNT = Check("devices", "the number of devices", "a rank without a device waits for ever")
COMPUTE = Check("compute", "the compute capability", "ranks of one engine run the same kernels")
MEMORY = Check(
    "device_memory", "free device memory", "what crashed earlier or runs beside still holds it"
)
STRANGERS = Check(
    "device_strangers", "strangers on the devices", "they take memory and time from the engine"
)
XID = Check("xid", "device errors in the kernel's log", "a device in error hangs all the others")
LINKS = Check("nvlinks", "the links between devices", "a link that is down slows every collective")
FABRIC = Check(
    "fabric", "the NVSwitch fabric", "without its manager every start ends in CUDA error 802"
)
HEALTH = Check("device_errors", "the devices' memory cells", "a bad cell ends the process it meets")
OF_NVIDIA = (XID, LINKS, FABRIC)
OF_ENFLAME = (enflame.LINK, enflame.TEMPERATURE)
CHECKS = (COUNT, COMPUTE, MEMORY, STRANGERS, *OF_NVIDIA, HEALTH, *OF_ENFLAME)
# What says who holds a device's memory.
WHO = {
    "nvidia": "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
    "enflame": "lsof /dev/gcu*",
}
Device = Mapping[str, Any]


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all devices."""
    found = []
    for host in cluster.hosts:
        kind = cluster.kind(host)
        if kind == "cpu":
            skipped = [check for check in CHECKS if check is not COMPUTE]
            found += [check.skipped(host, "no accelerators") for check in skipped]
            continue
        look = cluster.looks[host]["devices"]
        devices = [device for device in look["devices"] if "error" not in device]
        found.append(_memory(cluster, host, devices))
        found.append(_strangers(host, devices))
        if kind == "enflame":
            found.append(enflame.count(cluster, host, look, COUNT))
            found += enflame.rows(host, devices, HEALTH)
            found += [check.skipped(host, "of NVIDIA's devices alone") for check in OF_NVIDIA]
            continue
        found.append(_count(cluster, host, look))
        found += [check.skipped(host, "of Enflame's devices alone") for check in OF_ENFLAME]
        found.append(_xid(host, look["kernel_log"]))
        found += [_links(host, devices), _fabric(host, devices), _health(host, devices)]
    return [*found, _compute(cluster)]


def _count(cluster: Cluster, host: str, look: Mapping[str, Any]) -> Row:
    wanted = int(cluster.hosts[host]["accelerator_count"])
    opened = [device for device in look["devices"] if "error" not in device]
    told = look.get("error") or f"{len(opened)} of {len(look['devices'])} answer"
    verdict = PASS if len(opened) >= wanted and "error" not in look else FAIL
    fix = "nvidia-smi -L; lspci -d 10de: shows a card that the driver does not list; reboot once"
    return COUNT.judged(verdict, host, f"{wanted} that answer", told, fix)


def _compute(cluster: Cluster) -> Row:
    values = {
        f"{host} device {device['index']}": str(device["compute"])
        for host, look in cluster.looks.items()
        for device in look.get("devices", {}).get("devices", [])
        if "compute" in device
    }
    if not values:
        return COMPUTE.skipped(EVERYWHERE, "no NVIDIA device answers")
    return equal_row(COMPUTE, values, "use one kind of device for a cluster")


def utilization(cluster: Cluster) -> float:
    """Return the largest part of a device that an engine will ask for."""
    asked = [
        float((engine.get("vllm_args") or {}).get("gpu_memory_utilization", default_utilization()))
        for engine in cluster.engines
    ]
    return max(asked, default=default_utilization())


def _memory(cluster: Cluster, host: str, devices: list[Device]) -> Row:
    part = utilization(cluster)
    idle = [one for one in devices if not any(two["ours"] for two in one["processes"] or [])]
    if not devices:
        return MEMORY.skipped(host, "no device answers")
    if not idle:
        return MEMORY.skipped(host, "our own processes have all devices already")
    idle = [one for one in idle if None not in (one["memory"]["free"], one["memory"]["total"])]
    if not idle:
        return MEMORY.skipped(host, "the devices do not tell what is free")
    short = [one for one in idle if one["memory"]["free"] < part * one["memory"]["total"]]
    told = "; ".join(
        f"device {one['index']}: {gib(one['memory']['free'])} of {gib(one['memory']['total'])}"
        f"{_holders(one) if short else ''}"
        for one in short or idle[:1]
    )
    pids = _pids(short)
    fix = f"{WHO[cluster.kind(host)]}; end those by their number"
    if pids:
        fix = f"ask their user to end them: kill {' '.join(map(str, pids))}"
    return MEMORY.judged(FAIL if short else PASS, host, f"{part:.0%} of each free", told, fix)


def _strangers(host: str, devices: list[Device]) -> Row:
    found = [
        f"device {device['index']}: {who(one)} holds {_held(one['bytes'])}"
        for device in devices
        for one in device["processes"] or []
        if not one["ours"]
    ]
    pids = _pids(devices)
    fix = f"ask their user to end them: kill {' '.join(map(str, pids))}"
    verdict = WARN if found else PASS
    return STRANGERS.judged(verdict, host, "none", "; ".join(found) or "none", fix)


def _pids(devices: list[Device]) -> list[int]:
    """Return the numbers of the processes on devices that are not ours."""
    return sorted(
        {one["pid"] for device in devices for one in device["processes"] or [] if not one["ours"]}
    )


def _holders(device: Device) -> str:
    """Return who holds a device's memory, as far as its driver tells."""
    found = [
        f"{who(one)} holds {_held(one['bytes'])}"
        for one in device["processes"] or []
        if not one["ours"]
    ]
    return f" ({'; '.join(found)})" if found else ""


def _held(size: int | None) -> str:
    """Return held memory in words; not every driver tells how much it is."""
    return "it open" if size is None else gib(size)


def who(process: Mapping[str, Any]) -> str:
    """Return a process in words."""
    if not process["user"]:
        return f"process {process['pid']}, not visible from here,"
    return f"process {process['pid']} ({process['command']}) of {process['user']}"


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


def _health(host: str, devices: list[Device]) -> Row:
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
        return HEALTH.skipped(host, "these devices do not count memory errors")
    verdict = FAIL if broken else WARN if noted else PASS
    fix = "reset the idle device to remap its rows; where that failed, have the card replaced"
    wanted = "no row to be remapped, no uncorrected error since boot"
    return HEALTH.judged(verdict, host, wanted, "; ".join(broken + noted) or "none", fix)
