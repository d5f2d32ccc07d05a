"""efsmi and libefml as emulators show them (tests/emulators/enflame): no card was at hand."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.accelerators import efml, enflame
from vllm_ansible.node.accelerators.platforms.enflame import PLATFORM

EMULATORS = Path(__file__).parents[3] / "emulators/enflame"
Tell = Callable[..., str]


@pytest.fixture
def efsmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Give what makes devices and a loaded driver, and lets efsmi tell of them."""
    state = tmp_path / "state.json"
    monkeypatch.setenv("ENFLAME_STATE", str(state))
    monkeypatch.setenv("ENFLAME_ROOT", str(tmp_path))
    monkeypatch.setattr(enflame, "PLACES", str(EMULATORS))

    def tell(*arguments: str, driver: str = "1.4.3.4", **said: Any) -> str:
        version = tmp_path / "sys/module/enflame/version"
        version.parent.mkdir(parents=True, exist_ok=True)
        version.write_text(f"{driver}\n")
        state.write_text(json.dumps({"devices": [{}], **said}))
        return enflame.ask(*arguments) or ""

    return tell


@pytest.mark.parametrize("style", ["old", "new"])
def test_a_device_is_read_in_the_words_of_old_and_new_drivers(efsmi: Tell, style: str) -> None:
    devices = [{"bus": "b1"}, {"bus": "b2", "width": 8, "generation": 3, "temperature": 96}]
    one, two = enflame.devices(efsmi("-q", style=style, devices=devices))
    assert one["name"] == "S60" and one["pci"] == "0000:b1:00.0" and one["driver"] == "1.4.3.4"
    assert one["memory_bytes"] == 42976 << 20
    assert one["memory"]["free"] == (42976 - 1129) << 20
    assert one["ecc"] is True and one["replace"] is False and one["double_bit_ever"] == 0
    assert one["told_healthy"] is True
    assert two["index"] == 1 and two["temperature"] == 96
    assert two["link"] == {"width": 8, "most_width": 16, "generation": 3, "most_generation": 5}


@pytest.mark.parametrize("style", ["old", "new"])
def test_the_tools_own_version_stands_in_its_banner(efsmi: Tell, style: str) -> None:
    told = efsmi(style=style, driver="1.6.3.12", tool="1.6.3.11")
    assert enflame.tool_version(told) == "1.6.3.11"
    assert enflame.tool_version(None) == ""


def test_what_is_not_told_is_not_guessed() -> None:
    (one,) = enflame.devices("DEV ID 0\n    Device Info\n        Dev Name    : S60\n")
    assert one["memory"] == {"total": None, "used": None, "free": None}
    assert (one["temperature"], one["ecc"], one["replace"]) == (None, None, None)
    assert (one["pci"], one["serial"], one["memory_bytes"]) == ("", "", 0)
    assert enflame.devices("") == enflame.devices(None) == enflame.devices("no DEV here") == []


def test_a_size_in_another_unit_is_not_taken_for_mib() -> None:
    (one,) = enflame.devices("DEV ID 0\n    Device Mem Info\n        Mem Size : 42 GiB\n")
    assert one["memory"]["total"] is None and one["memory_bytes"] == 0


def test_a_tool_that_is_absent_or_fails_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enflame, "PLACES", str(tmp_path))
    assert enflame.ask("-q") is None
    monkeypatch.setattr(enflame, "PLACES", str(EMULATORS))
    monkeypatch.setenv("ENFLAME_ROOT", str(tmp_path))
    assert enflame.ask("-q") is None


def test_a_tool_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "efsmi"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setattr(enflame, "PLACES", str(tmp_path))
    monkeypatch.setattr(enflame, "TIMEOUT_SECONDS", 0.2)
    assert enflame.ask() is None


def test_cards_are_counted_by_efsmi_and_without_it_by_the_drivers_files(
    efsmi: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_bus = ["0000:17:00.0", "0000:18:00.0"]
    efsmi("-q", devices=[{}, {}])
    found = PLATFORM.devices(on_bus, "1.7")
    assert found[1] == {"index": 1, "name": "S60", "memory_bytes": 42976 << 20}
    monkeypatch.setattr(enflame, "PLACES", str(tmp_path))
    monkeypatch.setattr(enflame, "nodes", lambda: [0, 1])
    assert PLATFORM.devices(on_bus, "1.7") == [{"index": 0}, {"index": 1}]


def test_the_drivers_files_and_the_toolkits_packages_are_read(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("gcu0", "gcu1", "gcuctl"):
        (tmp_path / "dev" / name).touch()
    assert enflame.nodes(tmp_path) == [0, 1]
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: topsruntime\nStatus: install ok installed\nVersion: 1.10.25-1\n\n"
        "Package: enflame-container-toolkit\nStatus: deinstall ok config-files\nVersion: 2.0.50\n\n"
        "Package: tar\nStatus: install ok installed\nVersion: 1.34\n"
    )
    assert enflame.toolkit(tmp_path) == {"topsruntime": "1.10.25-1"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("efml") / "libefml.so"
    source = EMULATORS / "efml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


def test_memory_errors_are_counted_by_the_vendors_library(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(efml, "LIBRARY", str(library))
    monkeypatch.setenv("EMULATED_ECC", "0,0;7,2")
    # The third device is listed by efsmi, and the library has no counter of it.
    assert efml.ecc_errors([0, 1, 2]) == [
        {"single": 0, "double": 0},
        {"single": 7, "double": 2},
        None,
    ]
    # efsmi leaves out what fell off the bus; the others keep their numbers.
    assert efml.ecc_errors([1]) == [{"single": 7, "double": 2}]
    assert efml.ecc_errors([]) == []
    monkeypatch.delenv("EMULATED_ECC")
    assert efml.ecc_errors([0]) == [None]
    monkeypatch.setattr(efml, "LIBRARY", "libefml-of-nobody.so")
    assert efml.ecc_errors([0, 1]) == [None, None]
    # A library without the call, which is each but the vendor's.
    monkeypatch.setattr(efml, "LIBRARY", None)
    assert efml.ecc_errors([0]) == [None]


def test_a_device_that_hangs_the_vendors_library_does_not_hang_the_look(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(efml, "LIBRARY", str(library))
    monkeypatch.setattr(efml, "TIMEOUT_SECONDS", 1)
    monkeypatch.setenv("EMULATED_ECC", "3,0;hang;0,0")
    assert efml.ecc_errors([0, 1, 2]) == [{"single": 3, "double": 0}, None, None]
