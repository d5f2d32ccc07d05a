"""NVML made for the test: what it has is read, and what it lacks is left out."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.accelerators import nvml

NOT_SUPPORTED = 3


class Library:
    """libnvidia-ml with the functions of one device; `answers` are what each writes."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, pci: Any, device: Any) -> int:
        return 0 if pci.value == b"0000:3b:00.0" else 6

    def nvmlDeviceGetNvLinkState(self, device: Any, link: int, active: Any) -> int:
        active._obj.value = link != 2
        return 0 if link < 3 else NOT_SUPPORTED

    def nvmlDeviceGetGpuFabricInfo(self, device: Any, info: Any) -> int:
        info._obj.state, info._obj.clique = 3, 5
        return 0

    def __getattr__(self, name: str) -> Any:
        values = self.answers.get(name)
        if values is None:
            raise AttributeError(name)

        def function(device: Any, *arguments: Any) -> int:
            for pointer, value in zip(arguments[-len(values) :], values, strict=True):
                pointer._obj.value = value
            return 0

        return function


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(library: Library | None, pci: str = "0000:3b:00.0") -> nvml.Nvml:
        def load(name: str) -> Library:
            if library is None:
                raise OSError(name)
            return library

        monkeypatch.setattr(nvml.ctypes, "CDLL", load)
        return nvml.Nvml(pci)

    return make


def test_links_fabric_and_memory_are_read(seen: Any) -> None:
    library = Library(
        nvmlDeviceGetTotalEccErrors=[4],
        nvmlDeviceGetRemappedRows=[1, 2, 1, 0],
        nvmlDeviceGetCurrPcieLinkWidth=[16],
    )
    health = seen(library).health()
    assert [one["active"] for one in health["nvlinks"]] == [True, True, False]
    assert health["fabric"] == {"state": "completed", "status": 0, "clique": 5}
    assert health["remapped_rows"] == {"corrected": 1, "uncorrected": 2, "pending": 1, "failed": 0}
    assert health["ecc_errors"]["uncorrected_ever"] == 4
    assert health["pcie"] == {"width": 16}


@pytest.mark.parametrize("function", ["ClocksEventReasons", "ClocksThrottleReasons"])
def test_what_slows_a_device_is_read_from_new_and_old_drivers(seen: Any, function: str) -> None:
    load = seen(Library(**{f"nvmlDeviceGetCurrent{function}": [0x1 | 0x4 | 0x40]})).load()
    assert load == {"throttled_by": ["software power cap", "hardware thermal slowdown"]}


@pytest.mark.parametrize("pci", ["0000:3b:00.0", "0000:ff:00.0"])
def test_nothing_is_said_of_a_device_that_it_does_not_show(seen: Any, pci: str) -> None:
    library = None if pci.startswith("0000:3b") else Library()
    found = seen(library, pci)
    assert (found.load(), found.health()) == ({}, {})


class Three(Library):
    """Three devices, of which one was lost."""

    count_status = 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 3
        return self.count_status

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:
        device._obj.value = index + 1
        return 15 if index == 1 else 0

    def nvmlDeviceGetPciInfo_v3(self, device: Any, info: Any) -> int:
        info._obj.address = f"0000:{device.value - 1}b:00.0".encode()
        return 0

    def nvmlDeviceGetName(self, device: Any, text: Any, length: int) -> int:
        text.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 80, 60
        return 0


def test_devices_are_listed_by_address_and_a_lost_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = Three()
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda _: library)
    assert nvml.addresses() == ["0000:0b:00.0", "0000:2b:00.0"]
    library.count_status = 999
    with pytest.raises(nvml.NvmlError, match="status 999"):
        nvml.addresses()


def test_without_nvml_no_device_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(nvml.ctypes, "CDLL", missing)
    assert nvml.addresses() is None


def test_name_and_use_are_read_as_far_as_the_driver_has_them(seen: Any) -> None:
    device = seen(Three())
    assert device.identity() == {"name": "NVIDIA H100 80GB HBM3"}
    assert device.use() == {"memory": {"total": 80, "used": 60}, "utilization": None}
    assert seen(None).identity() == {}
