"""Cards on a bus and a CUDA driver made for the test: no card was at hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.accelerators import accelerator, cuda_driver

NVIDIA = {"vendor": "0x10de", "class": "0x030200"}
NVIDIA_AUDIO = {"vendor": "0x10de", "class": "0x040300"}
ENFLAME = {"vendor": "0x1e36", "class": "0x120000"}
NETWORK = {"vendor": "0x15b3", "class": "0x020000"}


class Driver:
    """libcuda as a host's devices are asked by it; `broken` is what cuInit answers."""

    def __init__(self, cards: int, broken: int = 0) -> None:
        self.cards, self.broken = cards, broken

    def cuInit(self, flags: int) -> int:
        return self.broken

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.cards
        return 0

    def cuDeviceGet(self, handle: Any, index: int) -> int:
        handle._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, length: int, handle: Any) -> int:
        name.value = f"Card {handle.value}".encode()[:length]
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, handle: Any) -> int:
        size._obj.value = 80 << 30
        return 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give what puts cards on the bus and a driver beside them."""

    def make(*cards: dict[str, str], driver: Driver | None = None) -> dict[str, Any]:
        for number, card in enumerate(cards):
            device = tmp_path / f"0000:{number:02x}:00.0"
            device.mkdir()
            for name, value in card.items():
                (device / name).write_text(f"{value}\n")

        def library(name: str) -> Driver:
            if driver is None:
                raise OSError(f"{name}: cannot open shared object file")
            return driver

        on_bus = partial(accelerator.pci_devices, root=tmp_path)
        monkeypatch.setattr(accelerator, "pci_devices", on_bus)
        monkeypatch.setattr(cuda_driver.ctypes, "CDLL", library)
        return accelerator.accelerators()

    return make


def test_a_host_without_cards_computes_with_its_processor(machine: Any) -> None:
    found = machine(NETWORK)
    assert (found["kind"], found["count"], found["pci"]) == ("cpu", 1, [])


def test_the_driver_is_asked_for_each_card(machine: Any) -> None:
    found = machine(NVIDIA, NVIDIA_AUDIO, NVIDIA, driver=Driver(2))
    assert (found["kind"], found["count"]) == ("nvidia", 2)
    assert found["pci"] == ["0000:00:00.0", "0000:02:00.0"]
    assert found["devices"][1] == {"index": 1, "name": "Card 1", "memory_bytes": 80 << 30}


@pytest.mark.parametrize("driver", [None, Driver(1, broken=100)], ids=["absent", "refuses"])
def test_a_card_whose_driver_does_not_answer_is_not_counted(machine: Any, driver: Any) -> None:
    found = machine(NVIDIA, driver=driver)
    assert (found["kind"], found["count"]) == ("nvidia", 0)
    assert found["pci"] == ["0000:00:00.0"]


def test_a_driver_without_a_bus_counts(machine: Any) -> None:
    # Containers often see devices, but not /sys/bus/pci.
    assert machine(driver=Driver(1))["count"] == 1


def test_a_card_of_another_vendor_needs_its_driver_to_count(machine: Any) -> None:
    found = machine(ENFLAME, ENFLAME)
    assert (found["kind"], found["count"], len(found["pci"])) == ("enflame", 0, 2)


def test_a_container_is_not_blamed_for_devices_that_it_was_not_given(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "ROOT", tmp_path)
    (tmp_path / "dev").mkdir()
    for name in ("nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    monkeypatch.setattr(accelerator, "in_container", lambda root: True)
    found = machine(NVIDIA, NVIDIA, NVIDIA, driver=Driver(1))
    assert (found["count"], len(found["pci"]), found["withheld"]) == (1, 3, 2)
    monkeypatch.setattr(accelerator, "in_container", lambda root: False)
    assert accelerator.accelerators()["withheld"] == 0


def test_a_host_without_a_bus_has_no_cards(tmp_path: Path) -> None:
    assert accelerator.pci_devices(NVIDIA["vendor"], tmp_path / "none") == []
