"""Devices: as many and as capable as wanted, free, and in good health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.accelerators.platform import has_devices, platform
from vllm_ansible.plan.estimate.memory.budget import default_utilization
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
from vllm_ansible.verify.preflight.own import alone, own_checks

COUNT = Check("devices", "the number of devices", "a rank without a device waits for ever")
COMPUTE = Check("compute", "the compute capability", "ranks of one engine run the same kernels")
MEMORY = Check(
    "device_memory", "free device memory", "what crashed earlier or runs beside still holds it"
)
STRANGERS = Check(
    "device_strangers",
    "other processes on the devices",
    "they take memory and time from the engine",
)
HEALTH = Check("device_errors", "the devices' memory cells", "a bad cell ends the process it meets")
OWN = {name: one.devices for name, one in own_checks().items()}
CHECKS = (COUNT, COMPUTE, MEMORY, STRANGERS, HEALTH, *(one for own in OWN.values() for one in own))
Device = Mapping[str, Any]


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all devices."""
    found = []
    for host in cluster.hosts:
        kind = cluster.kind(host)
        if not has_devices(kind):
            skipped = [check for check in CHECKS if check is not COMPUTE]
            found += [check.skipped(host, "no accelerators") for check in skipped]
            continue
        look = cluster.looks[host].get("devices") or {"devices": []}
        devices = [device for device in look["devices"] if "error" not in device]
        found.append(_memory(cluster, host, devices))
        found.append(_strangers(host, devices))
        own = own_checks().get(kind)
        if own:
            found.append(own.count(cluster, host, look, COUNT))
            found += own.rows(host, look, devices, HEALTH)
        else:
            unknown = f"nothing here asks {platform(kind).title}'s devices"
            found += [check.skipped(host, unknown) for check in (COUNT, HEALTH)]
        others = {name: checks for name, checks in OWN.items() if name != kind}
        found += [
            check.skipped(host, alone(name)) for name, checks in others.items() for check in checks
        ]
    return [*found, _compute(cluster)]


def _compute(cluster: Cluster) -> Row:
    values = {
        f"{host} device {device['index']}": str(device["compute"])
        for host, look in cluster.looks.items()
        for device in look.get("devices", {}).get("devices", [])
        if "compute" in device
    }
    if not values:
        return COMPUTE.skipped(EVERYWHERE, "no device reports one")
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
        return MEMORY.skipped(host, "the devices do not report what is free")
    short = [one for one in idle if one["memory"]["free"] < part * one["memory"]["total"]]
    told = "; ".join(
        f"device {one['index']}: {gib(one['memory']['free'])} of {gib(one['memory']['total'])}"
        f"{_holders(one) if short else ''}"
        for one in short or idle[:1]
    )
    pids = _pids(short)
    own = own_checks().get(cluster.kind(host))
    fix = f"{own.who if own else 'lsof'}; end those by their number"
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
