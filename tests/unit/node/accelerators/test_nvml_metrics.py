"""Devices of NVIDIA as samples for Prometheus."""

from __future__ import annotations

import time
from typing import Any

from vllm_ansible.node.accelerators import nvml_metrics, xid
from vllm_ansible.node.accelerators.nvml_metrics import asked, samples

SILENT: dict[str, Any] = {"readable": True, "now": 500.0, "errors": [], "verdict": None}
NOW = 1_795_000_000.0


def device(**more: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "pci": "00000000:3b:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-1",
        "memory": {"total": 80 << 30, "used": 60 << 30},
        "utilization": 0.97,
        "clock_mhz": 1980,
        "temperature": 61,
        "power_watts": 640.0,
        "throttled_by": ["software power cap"],
        "ecc_errors": {"uncorrected_since_boot": 0, "corrected_since_boot": 2},
        "pcie": {"width": 16, "most_width": 16, "generation": 1, "most_generation": 5},
        "nvlinks": [{"link": number, "active": True} for number in range(18)],
        **more,
    }


def values(found: Any, name: str, **labels: str) -> list[float]:
    return [
        value
        for given, value in found[name]
        if all(given.get(label) == wanted for label, wanted in labels.items())
    ]


def told(*devices: Any, log: dict[str, Any] = SILENT) -> Any:
    return samples({"devices": list(devices)}, log, NOW)


def test_a_well_device_that_works_hard_is_healthy() -> None:
    found = told(device())
    assert values(found, "vllm_device_healthy", serial="GPU-1", device="0") == [1]
    assert values(found, "vllm_device_unwell") == [0, 0]
    assert values(found, "vllm_device_throttled", reason="software power cap") == [1]
    assert values(found, "vllm_device_throttled", reason="hardware thermal slowdown") == [0]
    assert values(found, "vllm_device_clock_hertz") == [1.98e9]
    assert values(found, "vllm_device_ecc_errors_total", kind="corrected") == [2]
    assert (values(found, "vllm_devices"), values(found, "vllm_devices_answer")) == ([1], [1])


def test_memory_lanes_and_links_make_a_device_unwell() -> None:
    for reason, more in (
        ("memory", {"ecc_errors": {"uncorrected_since_boot": 1}}),
        ("memory", {"remapped_rows": {"pending": 1, "failed": 0}}),
        ("link", {"pcie": {"width": 8, "most_width": 16}}),
        ("link", {"nvlinks": [{"active": True}, {"active": False}]}),
    ):
        found = told(device(**more))
        assert values(found, "vllm_device_unwell", reason=reason) == [1], more
        assert values(found, "vllm_device_healthy") == [0]
    without_bridge = told(device(nvlinks=[{"active": False}] * 4))
    assert values(without_bridge, "vllm_device_healthy") == [1]


def test_what_a_driver_does_not_have_is_left_out() -> None:
    found = told({"index": 0, "pci": "00000000:3b:00.0"})
    assert values(found, "vllm_device_healthy", serial="00000000:3b:00.0") == [1]
    for name in ("temperature_celsius", "power_watts", "memory_bytes", "throttled"):
        assert found[f"vllm_device_{name}"] == []


def test_errors_of_the_kernel_log_have_their_time_and_what_to_do() -> None:
    line = "[  440.500000] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    log = {**SILENT, "errors": xid.classified([line, line])}
    found = told(device(), log=log)
    assert values(found, "vllm_device_log_errors", code="79", verdict="reboot") == [2]
    assert values(found, "vllm_device_log_error_timestamp_seconds", code="79") == [NOW - 59.5]


def test_a_driver_that_hangs_or_fails_does_not_answer_and_one_that_is_not_there_is_not_asked() -> (
    None
):
    hanging = asked(lambda: time.sleep(60), 0.2)
    found = samples(hanging, SILENT, NOW)
    assert values(found, "vllm_devices_answer") == [0] and found["vllm_devices"] == []
    assert not any(samples({"devices": None}, SILENT, NOW).values())


def test_this_machine_without_devices_says_nothing() -> None:
    if nvml_metrics.nvml.addresses() is None:
        assert not any(nvml_metrics.current(NOW).values())
