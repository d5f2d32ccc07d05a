"""What Enflame devices count, as a textfile for Prometheus' node exporter, with a computed health.

The vendor's exporter has figures of load and power; its enflame_gcu_health is 1 whatever happens.

python3 -m vllm_ansible.node.enflame_metrics FILE [SECONDS]
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from . import efml, enflame, prometheus
from .enflame_health import HOT_SECONDS, broken, hot, narrow

SECONDS = 15.0
HELP = {
    "vllm_device_healthy": "1 for a device without any reason to be unwell, 0 for another.",
    "vllm_device_unwell": "1 for each reason: memory, link, temperature.",
    "vllm_device_temperature_celsius": "Its temperature.",
    "vllm_device_link_lanes": "Lanes of its PCIe link that are used.",
    "vllm_device_memory_used_bytes": "Memory that is used.",
    "vllm_device_memory_bytes": "Memory that it has.",
    "vllm_device_ecc_errors_total": "Memory errors that were corrected (single) or not (double).",
    "vllm_devices": "Devices that answer.",
    "vllm_devices_looked_at_timestamp_seconds": "When they were looked at.",
}
COUNTERS = ("vllm_device_ecc_errors_total",)
Samples = dict[str, list[tuple[dict[str, str], float]]]


class Watch:
    """Since when each device is hot: one look does not tell."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def burns(self, device: Mapping[str, Any], now: float) -> bool:
        """Tell whether a device has been too hot for as long as the vendor's limit has it."""
        serial = _serial(device)
        if not hot(device):
            self._since.pop(serial, None)
            return False
        return now - self._since.setdefault(serial, now) >= HOT_SECONDS


def look() -> list[dict[str, Any]]:
    """Return the devices that efsmi lists, with their memory errors."""
    found = enflame.devices(enflame.ask("-q"))
    for place, errors in enumerate(efml.ecc_errors([one["index"] for one in found])):
        found[place]["ecc_errors"] = errors
    return found


def samples(devices: Sequence[Mapping[str, Any]], watch: Watch, now: float) -> Samples:
    """Return every metric with its samples: labels and a value."""
    found: Samples = {name: [] for name in HELP}

    def add(name: str, labels: Mapping[str, str], value: Optional[float]) -> None:
        if value is not None:
            found[name].append((dict(labels), float(value)))

    for one in devices:
        labels = {"device": str(one["index"]), "serial": one["serial"], "name": one["name"]}
        unwell = {
            "memory": "; ".join(broken(one)),
            "link": narrow(one),
            "temperature": "too hot" if watch.burns(one, now) else "",
        }
        add("vllm_device_healthy", labels, not any(unwell.values()))
        for reason, why in unwell.items():
            add("vllm_device_unwell", {**labels, "reason": reason}, bool(why))
        add("vllm_device_temperature_celsius", labels, one["temperature"])
        add("vllm_device_link_lanes", labels, one["link"]["width"])
        add("vllm_device_memory_used_bytes", labels, one["memory"]["used"])
        add("vllm_device_memory_bytes", labels, one["memory"]["total"])
        for kind, errors in (one["ecc_errors"] or {}).items():
            add("vllm_device_ecc_errors_total", {**labels, "kind": kind}, errors)
    add("vllm_devices", {}, len(devices))
    add("vllm_devices_looked_at_timestamp_seconds", {}, now)
    return found


def text(found: Samples) -> str:
    """Return samples in Prometheus' text format."""
    written = {
        name: [(labels, f"{value:.15g}") for labels, value in rows] for name, rows in found.items()
    }
    return prometheus.text(written, HELP, COUNTERS)


def main(arguments: Sequence[str]) -> int:
    """Write the file again and again until asked to end; then take it away, for it would be old.

    After any other end it stays, so that its age tells.
    """
    path, seconds = Path(arguments[0]), float(arguments[1]) if arguments[1:] else SECONDS
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    watch = Watch()
    while not ended.is_set():
        prometheus.write(path, text(samples(look(), watch, time.time())))
        ended.wait(seconds)
    path.unlink(missing_ok=True)
    return 0


def _serial(device: Mapping[str, Any]) -> str:
    return str(device["serial"] or device["index"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
