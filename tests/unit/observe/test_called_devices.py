"""Alerts of devices to Alertmanager; their library and the kernel log are emulated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.clone import wait_until

from .conftest import PROGRAMS, ObservedSite

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not all(PROGRAMS.values()) or not shutil.which("gcc"),
        reason="no prometheus, alertmanager, node exporter or gcc here",
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root puts a file in the place of /dev/kmsg"),
]
SOURCE = Path(__file__).parents[2] / "emulators/nvml.c"
MINUTE = 60
HARMED = {"DeviceMissing", "DeviceUnwell", "DeviceError", "DeviceThrottled", "DriverSilent"}
HEAT, POWER_CAP = 0x40, 0x4
# As the kernel's records begin: priority, number, microseconds since boot, flags.
FALLEN = "4,1,{now},-;NVRM: Xid (PCI:0000:02:00): 79, pid=7, GPU has fallen off the bus.\n"
# What asks for nothing calls nobody.
FAULT = "4,2,{now},-;NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=python, Ch 00000008, MMU Fault\n"
PYTHON = """#!/bin/sh
export LD_LIBRARY_PATH={directory} VLLM_TEST_NVML={devices}
case "$*" in *facts.json*) exec unshare --mount sh -c \
'mount --bind {log} /dev/kmsg && exec "$0" "$@"' {python} "$@";; esac
exec {python} "$@"
"""


class DeviceSite(ObservedSite):
    """One host whose exporter meets an emulated library and an emulated kernel log."""

    def __init__(self, directory: Path, run_dir: Path) -> None:
        super().__init__(directory, run_dir)
        self.library = directory / "library"
        self.library.mkdir()
        built = self.library / "libnvidia-ml.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(built), str(SOURCE)], check=True)
        self.devices, self.log = directory / "devices", directory / "kmsg"
        self.has(2)
        self.logs(FAULT)
        python = self.cluster_dir / "tools/bin/python"
        python.unlink()
        python.write_text(
            PYTHON.format(
                directory=self.library,
                devices=self.devices,
                log=self.log,
                python=sys.executable,
            )
        )
        python.chmod(0o755)

    def has(self, left: int, reasons: int = 0, uncorrected: int = 0, hangs: bool = False) -> None:
        """Have two devices, of which so many are left, and what is wrong with the first one."""
        self.devices.write_text(f"2 {left} {reasons} {uncorrected} {int(hangs)}\n")

    def logs(self, line: str) -> None:
        with self.log.open("a") as log:
            log.write(line.format(now=int(time.monotonic() * 1e6)))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[DeviceSite]:
    # Sockets have short paths only.
    made = DeviceSite(tmp_path, Path(tempfile.mkdtemp(prefix="od")))
    try:
        yield made
    finally:
        made.end()


def test_each_fault_of_a_device_calls_with_its_words(watched: DeviceSite) -> None:
    """One story: the slowest rule first, and the library hangs last."""
    watched.has(2, POWER_CAP)
    status, said, _ = watched.observe()
    assert status == 0, said
    # Longer than each rule waits but that of heat, which is looked at again below.
    time.sleep(1.5 * MINUTE)
    assert not HARMED & set(watched.arrived())

    began = time.monotonic()

    def called(name: str, says: str, minutes: float) -> None:
        wait_until(lambda: name in watched.arrived(), minutes * MINUTE, name)
        print(f"{name} after {time.monotonic() - began:.0f} s", flush=True)
        assert says in watched.arrived()[name]["summary"]

    watched.has(1, HEAT, 3)
    watched.logs(FALLEN)
    called("DeviceError", "Xid 79 of 0000:02:00 on here: GPU has fallen off the bus", 2)
    called("DeviceMissing", "1 devices answer on here, fewer", 3)
    called("DeviceUnwell", "of here is unwell: memory", 3)
    assert "DeviceThrottled" not in watched.arrived()
    called("DeviceThrottled", "device 0 of here is slowed down: hardware thermal slowdown", 5)

    watched.has(1, hangs=True)
    began = time.monotonic()
    called("DriverSilent", "the accelerator's driver on here does not answer", 4)
    # Nothing is said of devices of which nothing is known.
    wait_until(lambda: "DeviceMissing" not in watched.arrived(), 2 * MINUTE, "one alert for it")
    watched.has(2)
    calm = HARMED - {"DeviceError"}
    wait_until(lambda: not calm & set(watched.arrived()), 3 * MINUTE, "calm")
    assert "DeviceError" in watched.arrived()
