"""Read the state of NVIDIA devices from libnvidia-ml.so.1 by ctypes, as far as it is there.

What a driver or a device does not have is left out: an old driver lacks whole functions.
"""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
MOST_LINKS = 18
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
# nvmlClocksEventReasons: what keeps a device from its highest clock.
THROTTLES = {
    0x2: "clocks set by an application",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock",
}
LINK_ERRORS = {0: "replay", 1: "recovery", 2: "crc_flit", 3: "crc_data"}
REMAPPED = ("corrected", "uncorrected", "pending", "failed")


class _FabricInfo(ctypes.Structure):
    _fields_ = [
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    ]


class _PciInfo(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("address", ctypes.c_char * 32),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Utilization(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class NvmlError(Exception):
    """The library is there, and does not list its devices."""


def addresses() -> list[str] | None:
    """Return the PCI addresses of all devices in NVML's order; None where there is no NVML."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    count = ctypes.c_uint()
    status = library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    if status:
        raise NvmlError(f"NVML does not list its devices: status {status}")
    found = []
    for index in range(count.value):
        device, info = ctypes.c_void_p(), _PciInfo()
        # A device that was lost has no handle: it is missed by its number.
        if not library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) and not (
            library.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(info))
        ):
            found.append(info.address.decode())
    return found


class Nvml:
    """One device as NVML shows it, found by its PCI address."""

    def __init__(self, pci: str) -> None:
        self.device = ctypes.c_void_p()
        self.library: Any = None
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return
        if library.nvmlInit_v2() != 0:
            return
        find = library.nvmlDeviceGetHandleByPciBusId_v2
        if find(ctypes.c_char_p(pci.encode()), ctypes.byref(self.device)) == 0:
            self.library = library

    def _read(
        self, function: str, *arguments: Any, kind: Any = ctypes.c_uint, many: int = 1
    ) -> Any:
        """Return what a function writes, or None where there is no answer."""
        address = getattr(self.library, function, None)
        if address is None:
            return None
        found = [kind() for _ in range(many)]
        if address(self.device, *arguments, *[ctypes.byref(one) for one in found]) != 0:
            return None
        return found[0].value if many == 1 else [one.value for one in found]

    def identity(self) -> dict[str, Any]:
        """Return by what people know a device: its name and its UUID."""
        found = {}
        for name, function in (("name", "nvmlDeviceGetName"), ("uuid", "nvmlDeviceGetUUID")):
            address = getattr(self.library, function, None)
            text = ctypes.create_string_buffer(96)
            if address is not None and address(self.device, text, 96) == 0:
                found[name] = text.value.decode(errors="replace")
        return found

    def use(self) -> dict[str, Any]:
        """Return how much of its memory is used, and in how much of the time it computed."""
        memory, busy = _Memory(), _Utilization()
        found: dict[str, Any] = {}
        for function, into in (
            ("nvmlDeviceGetMemoryInfo", memory),
            ("nvmlDeviceGetUtilizationRates", busy),
        ):
            address = getattr(self.library, function, None)
            if address is None or address(self.device, ctypes.byref(into)) != 0:
                continue
            found.update((field[0], getattr(into, field[0])) for field in into._fields_)
        return {
            "memory": {"total": found["total"], "used": found["used"]}
            if "total" in found
            else None,
            "utilization": found["gpu"] / 100 if "gpu" in found else None,
        }

    def load(self) -> dict[str, Any]:
        """Return what changes with the load: clocks, power, temperature, what holds it back."""
        power, limit = (
            self._read(f"nvmlDeviceGet{name}") for name in ("PowerUsage", "EnforcedPowerLimit")
        )
        reasons = self._read("nvmlDeviceGetCurrentClocksEventReasons", kind=ctypes.c_ulonglong)
        if reasons is None:
            reasons = self._read(
                "nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong
            )
        return _known(
            clock_mhz=self._read("nvmlDeviceGetClockInfo", 1),
            memory_clock_mhz=self._read("nvmlDeviceGetClockInfo", 2),
            temperature=self._read("nvmlDeviceGetTemperature", 0),
            power_watts=None if power is None else power / 1000,
            power_limit_watts=None if limit is None else limit / 1000,
            throttled_by=None
            if reasons is None
            else [words for bit, words in THROTTLES.items() if reasons & bit],
        )

    def health(self) -> dict[str, Any]:
        """Return memory errors, remapped rows, links of every kind and the fabric's state."""
        ecc = {}
        for error, kind in enumerate(("corrected", "uncorrected")):
            for counter, since in enumerate(("since_boot", "ever")):
                ecc[f"{kind}_{since}"] = self._read(
                    "nvmlDeviceGetTotalEccErrors", error, counter, kind=ctypes.c_ulonglong
                )
        rows = self._read("nvmlDeviceGetRemappedRows", many=4)
        return _known(
            ecc_errors=_known(**ecc) or None,
            remapped_rows=rows and {name: rows[at] for at, name in enumerate(REMAPPED)},
            mig=self._read("nvmlDeviceGetMigMode", many=2),
            persistence=self._read("nvmlDeviceGetPersistenceMode"),
            pcie=_known(
                generation=self._read("nvmlDeviceGetCurrPcieLinkGeneration"),
                most_generation=self._read("nvmlDeviceGetMaxPcieLinkGeneration"),
                width=self._read("nvmlDeviceGetCurrPcieLinkWidth"),
                most_width=self._read("nvmlDeviceGetMaxPcieLinkWidth"),
                replays=self._read("nvmlDeviceGetPcieReplayCounter"),
            )
            or None,
            nvlinks=self._links() or None,
            fabric=self._fabric(),
        )

    def _links(self) -> list[dict[str, Any]]:
        links = []
        for link in range(MOST_LINKS):
            active = self._read("nvmlDeviceGetNvLinkState", link)
            if active is None:
                continue
            errors = {
                name: self._read(
                    "nvmlDeviceGetNvLinkErrorCounter", link, number, kind=ctypes.c_ulonglong
                )
                for number, name in LINK_ERRORS.items()
            }
            links.append({"link": link, "active": bool(active), **_known(**errors)})
        return links

    def _fabric(self) -> dict[str, Any] | None:
        function = getattr(self.library, "nvmlDeviceGetGpuFabricInfo", None)
        info = _FabricInfo()
        if function is None or function(self.device, ctypes.byref(info)) != 0:
            return None
        state = FABRIC_STATES.get(info.state, str(info.state))
        return {"state": state, "status": info.status, "clique": info.clique}


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
