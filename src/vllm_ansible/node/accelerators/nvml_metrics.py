"""What NVIDIA's devices count, by NVML and by the kernel log, as samples for Prometheus.

Names and labels are those of the other platform's file, so that one rule watches both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Callable, Optional

from ..forked import run_each
from . import nvml, xid

# A driver that hangs does not come back: asked in a process that may be left behind.
SECONDS = 20.0
HELP = {
    "vllm_devices_answer": "1 while the driver answers, 0 when it gave no answer or an error.",
    "vllm_devices": "Devices that answer.",
    "vllm_device_healthy": "1 for a device without any reason to be unwell, 0 for another.",
    "vllm_device_unwell": "1 for each reason: memory, link.",
    "vllm_device_throttled": "1 for each reason that keeps a device from its highest clock now.",
    "vllm_device_temperature_celsius": "Its temperature.",
    "vllm_device_power_watts": "Power that it draws.",
    "vllm_device_power_limit_watts": "Power that it may draw.",
    "vllm_device_clock_hertz": "Clock of its multiprocessors.",
    "vllm_device_utilization_ratio": "Share of the last moment in which it computed.",
    "vllm_device_memory_used_bytes": "Memory that is used.",
    "vllm_device_memory_bytes": "Memory that it has.",
    "vllm_device_link_lanes": "Lanes of its PCIe link that are used.",
    "vllm_device_link_most_lanes": "Lanes that its PCIe link can have.",
    "vllm_device_fabric_links_down": "NVLinks that are not active.",
    "vllm_device_ecc_errors_total": "Memory errors since boot, corrected or not.",
    "vllm_device_log_readable": "1 where the kernel log can be read, 0 where it may not be.",
    "vllm_device_log_errors": "Xid and SXid errors that the kernel log holds.",
    "vllm_device_log_error_timestamp_seconds": "When the last of them came.",
}
COUNTERS = ("vllm_device_ecc_errors_total",)
Samples = dict[str, list[tuple[dict[str, str], float]]]


def look() -> Optional[list[dict[str, Any]]]:
    """Return each device as NVML shows it; None where there is no NVML."""
    found = nvml.addresses()
    if found is None:
        return None
    devices = []
    for index, pci in enumerate(found):
        one = nvml.Nvml(pci)
        devices.append(
            {
                "index": index,
                "pci": pci,
                **one.identity(),
                **one.use(),
                **one.load(),
                **one.health(),
            }
        )
    return devices


def asked(ask: Callable[[], Any] = look, seconds: float = SECONDS) -> dict[str, Any]:
    """Return `devices`, or `error` where the driver gave none in time."""
    return run_each([lambda tell: tell("devices", ask())], seconds, nvml.NvmlError)[0]


def _reasons(device: Mapping[str, Any]) -> dict[str, bool]:
    """Return by reason whether a device is unwell.

    Lanes count, generations do not: an idle link goes down to the first one by itself.
    """
    errors, rows = device.get("ecc_errors") or {}, device.get("remapped_rows") or {}
    pcie, links = device.get("pcie") or {}, device.get("nvlinks") or ()
    active = sum(bool(one["active"]) for one in links)
    memory = errors.get("uncorrected_since_boot") or rows.get("pending") or rows.get("failed")
    narrow = pcie.get("width", 0) < pcie.get("most_width", 0)
    # A board without a bridge has none that is active.
    return {"memory": bool(memory), "link": narrow or 0 < active < len(links)}


def samples(told: Mapping[str, Any], log: Mapping[str, Any], now: float) -> Samples:
    """Return every metric with its samples; nothing of devices where there is no NVML.

    told: what `asked` returned. log: what xid.log_errors returned.
    """
    found: Samples = {name: [] for name in HELP}
    if "error" not in told and told.get("devices") is None:
        return found

    def add(name: str, labels: Mapping[str, Any], value: Optional[float], scale: float = 1) -> None:
        if value is not None:
            texts = {label: str(one) for label, one in labels.items()}
            found[name].append((texts, float(value) * scale))

    add("vllm_devices_answer", {}, "error" not in told)
    devices = told.get("devices") or ()
    if "error" not in told:
        add("vllm_devices", {}, len(devices))
    for one in devices:
        labels = {
            "device": one["index"],
            "serial": one.get("uuid", one["pci"]),
            "name": one.get("name", ""),
        }
        reasons = _reasons(one)
        memory, pcie = one.get("memory") or {}, one.get("pcie") or {}
        add("vllm_device_healthy", labels, not any(reasons.values()))
        for reason, unwell in reasons.items():
            add("vllm_device_unwell", {**labels, "reason": reason}, unwell)
        for reason in nvml.THROTTLES.values() if "throttled_by" in one else ():
            add(
                "vllm_device_throttled", {**labels, "reason": reason}, reason in one["throttled_by"]
            )
        add("vllm_device_temperature_celsius", labels, one.get("temperature"))
        add("vllm_device_power_watts", labels, one.get("power_watts"))
        add("vllm_device_power_limit_watts", labels, one.get("power_limit_watts"))
        add("vllm_device_clock_hertz", labels, one.get("clock_mhz"), 1e6)
        add("vllm_device_utilization_ratio", labels, one.get("utilization"))
        add("vllm_device_memory_used_bytes", labels, memory.get("used"))
        add("vllm_device_memory_bytes", labels, memory.get("total"))
        add("vllm_device_link_lanes", labels, pcie.get("width"))
        add("vllm_device_link_most_lanes", labels, pcie.get("most_width"))
        if one.get("nvlinks"):
            down = sum(not link["active"] for link in one["nvlinks"])
            add("vllm_device_fabric_links_down", labels, down)
        for name, errors in (one.get("ecc_errors") or {}).items():
            if name.endswith("_since_boot"):
                kind = name.partition("_")[0]
                add("vllm_device_ecc_errors_total", {**labels, "kind": kind}, errors)
    add("vllm_device_log_readable", {}, log["readable"])
    for error in log["errors"]:
        labels = {name: error[name] for name in ("kind", "pci", "code", "verdict", "meaning")}
        add("vllm_device_log_errors", labels, error["times"])
        if "at" in error:
            when = now - (log["now"] - error["at"])
            add("vllm_device_log_error_timestamp_seconds", labels, when)
    return found


def current(now: Optional[float] = None) -> Samples:
    """Ask the driver and read the kernel log."""
    return samples(asked(), xid.log_errors(), time.time() if now is None else now)
