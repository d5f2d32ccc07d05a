"""Measure what NVIDIA devices do: products, memory, host link and each other, all checked.

`python3 -m vllm_ansible.node.accelerators.cuda_probe` prints the figures as JSON.
Nothing has to be installed but the driver. Rates are in GB/s of 1e9 bytes and in TFLOP/s, as
medians of several runs.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from typing import Any

from ..forked import Tell, Work, run_each
from .accelerator import PCI
from .cuda_driver import CudaError, Driver, Session
from .cuda_measure import LEAST_BYTES, MEASURES, Device, host_link, memory
from .cuda_peers import measure_peers
from .nvml import Nvml
from .xid import log_errors

SECONDS, BYTES = 5.0, 1 << 30
# Where devices were asleep, a driver takes several seconds for each until it has started.
START_SECONDS = 40


def _near(pci: str) -> None:
    """Run on the processors beside a device, so that pinned memory is beside it too."""
    try:
        listed = (PCI / pci / "local_cpulist").read_text().strip().split(",")
        ranges = [part.partition("-")[::2] for part in listed if part]
        near = {n for low, high in ranges for n in range(int(low), int(high or low) + 1)}
        os.sched_setaffinity(0, near & os.sched_getaffinity(0))
    except (OSError, ValueError):
        pass  # a container without /sys, or processors that it may not use: it runs where it is


def _alone(turn: int, seconds: float) -> bool:
    """Wait until no other device's child measures the host; False if that took too long."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            fcntl.lockf(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(0.01)
    return False


def _driver() -> tuple[Driver, int]:
    # As nvidia-smi counts; and the driver's cache of compiled kernels leaves no file behind.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    driver = Driver()
    return driver, driver.start()


def _list(tell: Tell) -> None:
    tell("stage", "start")
    driver, count = _driver()
    tell("cuda", driver.version())
    tell("devices", [driver.describe(index) for index in range(count)])


def _measure(known: dict[str, Any], size: int, seconds: float, turn: int, tell: Tell) -> None:
    tell("stage", "start")
    _near(known["pci"])
    nvml = Nvml(known["pci"])
    try:
        driver, _ = _driver()
        with Session(driver, known["index"]) as session:
            tell("free_bytes", session.free_bytes())
            _measure_all(Device(session, size, seconds, nvml), seconds, turn, tell)
    finally:
        # NVML still answers for a device that no longer computes, and then it is wanted most.
        tell("health", nvml.health())


def _measure_all(device: Device, seconds: float, turn: int, tell: Tell) -> None:
    for measure in MEASURES:
        name = measure.__name__
        tell("stage", name)
        if measure is host_link:
            alone = _alone(turn, 2 * seconds)
            tell(name, {**measure(device), "alone": alone})
            fcntl.lockf(turn, fcntl.LOCK_UN)
        # One pass over the memory is made on the busiest host, too: without it nothing is proven.
        elif measure is not memory and time.monotonic() > device.until:
            tell(name, {"skipped": f"{seconds:g} seconds were over"})
        else:
            tell(name, measure(device))


def _peers(indexes: list[int], seconds: float, tell: Tell) -> None:
    tell("stage", "start")
    driver, _ = _driver()
    measure_peers(driver, indexes, seconds, tell)


def refusal(seconds: float, size: int) -> str | None:
    """Return why nothing can be measured in so many seconds and bytes; None if it can."""
    if seconds <= 0:
        return f"{seconds:g} seconds are no time to measure in"
    if size < LEAST_BYTES:
        return f"{size} bytes are too few to measure in: at least {LEAST_BYTES} are needed"
    return None


def probe(devices: list[int], seconds: float, size: int) -> dict[str, Any]:
    """Measure the devices of these numbers, or all, each for about so many seconds.

    CudaError says why nothing could be measured. A device that failed has an `error` and what
    was measured until then.
    """
    began = time.monotonic()
    (found,) = run_each([_list], START_SECONDS, CudaError)
    if "error" in found:
        raise CudaError(found["error"])
    chosen = [one for one in found["devices"] if not devices or one["index"] in devices]
    missing = set(devices) - {one["index"] for one in chosen}
    if missing or not chosen:
        asked = ", ".join(map(str, sorted(missing))) or "any"
        raise CudaError(f"the driver shows {len(found['devices'])} devices, not device {asked}")
    # What the children lock in turn; it is in memory, so that no file is left or has to be written.
    turn = os.memfd_create("turn")

    def work(known: dict[str, Any]) -> Work:
        return lambda tell: _measure(known, size, seconds, turn, tell)

    limit = START_SECONDS + (3 + 0.5 * len(chosen)) * seconds
    try:
        told = run_each([work(one) for one in chosen], limit, CudaError)
    finally:
        os.close(turn)
    measured: dict[str, Any] = {
        "cuda": found["cuda"],
        "devices": [{**one, **figures} for one, figures in zip(chosen, told)],  # noqa: B905 3.9
    }
    sound = [one["index"] for one in measured["devices"] if "error" not in one]
    if len(sound) > 1:
        limit = START_SECONDS + 3 * seconds
        (peers,) = run_each([lambda tell: _peers(sound, seconds, tell)], limit, CudaError)
        measured["peers"] = peers
    # Last, so that what the driver wrote meanwhile is in it.
    measured["kernel_log"] = log_errors()
    return {**measured, "seconds": round(time.monotonic() - began, 2)}


def main() -> int:
    """Print the figures of this host's devices."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", type=int, action="append", default=[], help="all by default")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each device")
    parser.add_argument("--bytes", type=int, default=BYTES, help="memory of a device to work in")
    wanted = parser.parse_args()
    if refused := refusal(wanted.seconds, wanted.bytes):
        parser.error(refused)
    try:
        print(json.dumps(probe(wanted.device, wanted.seconds, wanted.bytes), indent=1))
    except CudaError as error:
        print(f"Nothing was measured: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
