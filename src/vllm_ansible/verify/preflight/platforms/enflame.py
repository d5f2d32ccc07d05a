"""Enflame devices, judged by what they count: the vendor's word is that all of them are well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_ansible.node.accelerators.enflame_health import HOT_DEGREES, Device, broken, hot, narrow
from vllm_ansible.verify.preflight.check import FAIL, PASS, WARN, Check, Cluster, Row, equal
from vllm_ansible.verify.preflight.own import Look, OwnChecks

LINK = Check(
    "device_link", "the PCIe link of each device", "a narrow link slows every copy to the device"
)
TEMPERATURE = Check(
    "device_temperature", "the devices' temperature", "a hot device lowers its clocks"
)
TOOLKIT = Check(
    "toolkit",
    "the accelerators' toolkit",
    "ranks of different runtimes hang in collectives",
)


def rows(host: str, look: Look, devices: list[Device], memory_errors: Check) -> list[Row]:
    """Return the rows of one host's health."""
    del look
    return [_health(host, devices, memory_errors), _link(host, devices), _warmth(host, devices)]


def count(cluster: Cluster, host: str, look: Look, check: Check) -> Row:
    """Return whether as many devices answer as the inventory counts on."""
    wanted, answer = int(cluster.hosts[host]["accelerator_count"]), len(look["devices"])
    told = look.get("error") or f"{answer} answer"
    fix = "efsmi; lspci -d 1e36: shows a card that it does not list; dmesg says why"
    verdict = PASS if answer >= wanted else FAIL
    return check.judged(verdict, host, f"{wanted} that answer", told, fix)


def _noted(device: Device) -> Iterator[str]:
    errors = device.get("ecc_errors") or {}
    if errors.get("single"):
        yield f"{errors['single']} corrected errors"
    if device.get("ecc") is False:
        yield "ECC is off"


def _counts(device: Device) -> bool:
    return bool(device.get("ecc_errors")) or device.get("double_bit_ever") is not None


def _health(host: str, devices: list[Device], check: Check) -> Row:
    unwell = [f"device {one['index']}: {what}" for one in devices for what in broken(one)]
    noted = [f"device {one['index']}: {what}" for one in devices for what in _noted(one)]
    told = [one for one in devices if _counts(one)]
    if not told and not unwell and not noted:
        return check.skipped(host, "neither libefml.so nor efsmi counts memory errors here")
    if told:
        silent = [one for one in devices if not _counts(one)]
        noted += [f"device {one['index']}: reports no count of memory errors" for one in silent]
    verdict = FAIL if unwell else WARN if noted else PASS
    wanted = "no double-bit error, no request for a replacement, ECC on"
    fix = "have the card replaced" if unwell else "watch it; `efsmi -q` has the device's ECC mode"
    return check.judged(verdict, host, wanted, "; ".join(unwell + noted) or "none", fix)


def _link(host: str, devices: list[Device]) -> Row:
    lacking, slow = [], []
    widths = ("width", "most_width")
    told = [one for one in devices if all(one["link"][width] is not None for width in widths)]
    if not told:
        return LINK.skipped(host, "efsmi does not report the width of a link")
    for one in told:
        link = one["link"]
        where = f"device {one['index']} ({one['pci']}):"
        if lanes := narrow(one):
            lacking.append(f"{where} {lanes}")
        elif (link["generation"] or 0) < (link["most_generation"] or 0):
            slow.append(f"{where} Gen{link['generation']:.0f} of Gen{link['most_generation']:.0f}")
    verdict = FAIL if lacking else WARN if slow else PASS
    fix = "reseat the card, or use a slot that has all its lanes"
    found = "; ".join(lacking + slow) or f"x{told[0]['link']['width']:.0f} and as fast as it can"
    return LINK.judged(verdict, host, "the widest and fastest it can", found, fix)


def _warmth(host: str, devices: list[Device]) -> Row:
    told = {one["index"]: one["temperature"] for one in devices if one["temperature"] is not None}
    if not told:
        return TEMPERATURE.skipped(host, "efsmi does not report a temperature")
    burning = [one for one in devices if hot(one)]
    found = ", ".join(f"device {one['index']}: {one['temperature']:.0f}" for one in burning)
    fix = "look at fans, air flow and power; a device that stays hot is taken out of the group gpu"
    return TEMPERATURE.judged(
        FAIL if burning else PASS,
        host,
        f"at most {HOT_DEGREES} degrees Celsius",
        found or f"{max(told.values()):.0f} at most",
        fix,
    )


def installed(cluster: Cluster, hosts: Sequence[str]) -> list[Row]:
    """Compare efsmi and the packages beside it; CUDA's counterpart comes with the engine."""
    values = {}
    for host in hosts:
        told = cluster.looks[host].get("devices", {}).get("toolkit", {})
        values[host] = ", ".join(f"{name} {version}" for name, version in sorted(told.items()))
    fix = "install the most common versions on the others, from one TopsPlatform or TopsRider file"
    return [equal(TOOLKIT, values, fix)]


def peer_memory(found: Look) -> tuple[str, str, str]:
    """Return what lets network cards reach the devices' memory: wanted, found, and the fix."""
    told = "enflame_peer_mem" if found["enflame"] else ""
    return "enflame_peer_mem", told, "modprobe enflame_peer_mem, or enflame_driver_mode: manage"


CHECKS = OwnChecks(
    devices=(LINK, TEMPERATURE),
    versions=(TOOLKIT,),
    count=count,
    rows=rows,
    installed=installed,
    peer_memory=peer_memory,
    who="lsof /dev/gcu*",
    driver_fix="give all hosts one driver: enflame_driver_mode: manage, from one file",
)
