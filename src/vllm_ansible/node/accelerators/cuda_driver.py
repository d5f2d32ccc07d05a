"""Speak to the CUDA driver, libcuda.so.1, by ctypes: nothing has to be installed beside it."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack
from typing import Any, Callable

LIBRARY = "libcuda.so.1"
# How arguments travel: n is a size_t, d a device address, and a dot is passed as it comes.
# ctypes takes a plain integer for a C int and would cut these two to 32 bits.
CALLS = {
    "cuInit": ".",
    "cuDriverGetVersion": ".",
    "cuDeviceGetCount": ".",
    "cuDeviceGet": "..",
    "cuDeviceGetName": "...",
    "cuDeviceGetUuid": "..",
    "cuDeviceGetPCIBusId": "...",
    "cuDeviceGetAttribute": "...",
    "cuDeviceTotalMem_v2": "..",
    "cuDeviceCanAccessPeer": "...",
    "cuDevicePrimaryCtxRetain": "..",
    "cuDevicePrimaryCtxRelease_v2": ".",
    "cuCtxSetCurrent": ".",
    "cuCtxSynchronize": "",
    "cuCtxEnablePeerAccess": "..",
    "cuMemGetInfo_v2": "..",
    "cuMemAlloc_v2": ".n",
    "cuMemFree_v2": "d",
    "cuMemAllocHost_v2": ".n",
    "cuMemFreeHost": ".",
    "cuMemsetD8_v2": "d.n",
    "cuMemsetD32_v2": "d.n",
    "cuMemcpyHtoD_v2": "d.n",
    "cuMemcpyDtoH_v2": ".dn",
    "cuMemcpyHtoDAsync_v2": "d.n.",
    "cuMemcpyDtoHAsync_v2": ".dn.",
    "cuMemcpyDtoDAsync_v2": "ddn.",
    "cuMemcpyPeerAsync": "d.d.n.",
    "cuModuleLoadData": "..",
    "cuModuleUnload": ".",
    "cuModuleGetFunction": "...",
    "cuLaunchKernel": "...........",
    "cuEventCreate": "..",
    "cuEventRecord": "..",
    "cuEventSynchronize": ".",
    "cuEventElapsedTime": "...",
    "cuEventDestroy_v2": ".",
}
WIDE: dict[str, Callable[[Any], Any]] = {"n": ctypes.c_size_t, "d": ctypes.c_uint64}
ATTRIBUTES = {
    "multiprocessors": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "ecc": 32,
    "major": 75,
    "minor": 76,
}


class CudaError(Exception):
    """The driver is absent or refused something; the message says what was attempted."""


class Driver:
    """The functions of the driver; a call that it refuses becomes a CudaError with its name."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CudaError(f"the CUDA driver cannot be loaded ({error})") from None

    def code(self, function: str, *arguments: Any) -> int:
        """Call a function and return its answer, 0 for success."""
        address = getattr(self.library, function, None)
        if address is None:
            raise CudaError(f"{function}: this driver does not have it")
        pairs = zip(CALLS[function], arguments)  # noqa: B905 Python 3.9
        typed = [WIDE.get(kind, lambda x: x)(one) for kind, one in pairs]
        return int(address(*typed))

    def call(self, function: str, *arguments: Any, what: str = "") -> None:
        """Call a function; what says in words what for."""
        code = self.code(function, *arguments)
        if code:
            attempted = f"{what} ({function})" if what else function
            raise CudaError(f"{attempted}: {self.name_of(code)}")

    def name_of(self, code: int) -> str:
        """Return the driver's own name and words for an error."""
        words = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            known = getattr(self.library, function, None)
            if known is not None and known(code, ctypes.byref(text)) == 0 and text.value:
                words.append(text.value.decode())
        return ", ".join(words) or f"CUDA error {code}"

    def number(self, function: str, *arguments: Any, kind: Any = ctypes.c_int) -> int:
        """Return the number that a function writes to its first argument."""
        found = kind()
        self.call(function, ctypes.byref(found), *arguments)
        return int(found.value)

    def start(self) -> int:
        """Initialize the driver and return how many devices it shows."""
        self.call("cuInit", 0, what="starting the driver")
        return self.number("cuDeviceGetCount")

    def version(self) -> str:
        """Return the version of CUDA up to which this driver runs programs."""
        version = self.number("cuDriverGetVersion")
        return f"{version // 1000}.{version % 1000 // 10}"

    def name_and_memory(self, index: int) -> dict[str, Any]:
        """Return number, name and memory of a device."""
        handle, name = ctypes.c_int(), ctypes.create_string_buffer(128)
        self.call("cuDeviceGet", ctypes.byref(handle), index)
        self.call("cuDeviceGetName", name, len(name), handle)
        size = self.number("cuDeviceTotalMem_v2", handle, kind=ctypes.c_size_t)
        return {"index": index, "name": name.value.decode(), "memory_bytes": size}

    def describe(self, index: int) -> dict[str, Any]:
        """Return what the driver knows about a device without starting any work on it."""
        handle = ctypes.c_int(self.number("cuDeviceGet", index))
        pci, uuid = ctypes.create_string_buffer(32), (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetPCIBusId", pci, len(pci), handle)
        self.call("cuDeviceGetUuid", uuid, handle)
        text = bytes(uuid).hex()
        parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
        known: dict[str, Any] = {}
        for attribute, number in ATTRIBUTES.items():
            value = ctypes.c_int()
            code = self.code("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
            known[attribute] = None if code else value.value
        major, minor = known.pop("major"), known.pop("minor")
        return {
            **self.name_and_memory(index),
            "uuid": f"GPU-{'-'.join(parts)}",
            "pci": pci.value.decode().lower(),
            "compute_capability": f"{major}.{minor}",
            **known,
        }


class Session:
    """The primary context of one device; all that was made in it is freed when it ends."""

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver, self.index, self.context = driver, index, ctypes.c_void_p()
        self.handle = ctypes.c_int()
        self.made = ExitStack()
        self.event_pair: list[ctypes.c_void_p] = []

    def __enter__(self) -> Session:
        """Open the device."""
        handle = self.handle = ctypes.c_int(self.driver.number("cuDeviceGet", self.index))
        what = f"opening device {self.index}"
        self.driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), handle, what=what)
        self.made.callback(self.driver.code, "cuDevicePrimaryCtxRelease_v2", handle)
        try:
            self.use()
            self.event_pair = [
                self._make("cuEventCreate", 0, free="cuEventDestroy_v2") for _ in range(2)
            ]
        except BaseException:
            self.made.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Free all that was made, and the context."""
        # What frees is told no errors: after a fault of the device every call returns the same one.
        self.driver.code("cuCtxSetCurrent", self.context)
        self.made.close()

    def _make(self, function: str, *arguments: Any, free: str, what: str = "") -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.driver.call(function, ctypes.byref(made), *arguments, what=what)
        self.made.callback(self.driver.code, free, made)
        return made

    def use(self) -> None:
        """Make this the device that the calls that follow speak of."""
        self.driver.call("cuCtxSetCurrent", self.context)

    def attribute(self, number: int) -> int:
        """Return an attribute of the device by the number that cuda.h gives it."""
        return self.driver.number("cuDeviceGetAttribute", number, self.handle)

    def free_bytes(self) -> int:
        """Return how much of the device's memory nobody holds."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        """Return the address of device memory."""
        address = ctypes.c_uint64()
        what = f"allocating {size} bytes on device {self.index}"
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), size, what=what)
        self.made.callback(self.driver.code, "cuMemFree_v2", address.value)
        return address.value

    def pinned(self, size: int) -> ctypes.c_void_p:
        """Return the address of host memory that the device reads and writes directly."""
        what = f"pinning {size} bytes of host memory"
        return self._make("cuMemAllocHost_v2", size, free="cuMemFreeHost", what=what)

    def functions(self, ptx: str, *names: str) -> list[ctypes.c_void_p]:
        """Compile PTX for this device and return the kernels of these names."""
        text = ctypes.c_char_p(ptx.encode())
        what = f"compiling for device {self.index}"
        module = self._make("cuModuleLoadData", text, free="cuModuleUnload", what=what)
        found = []
        for name in names:
            function = ctypes.c_void_p()
            self.driver.call(
                "cuModuleGetFunction",
                ctypes.byref(function),
                module,
                ctypes.c_char_p(name.encode()),
            )
            found.append(function)
        return found

    def launch(
        self, function: ctypes.c_void_p, grid: tuple[int, int], *arguments: Any, block: int = 256
    ) -> None:
        """Start a kernel; arguments are ctypes values of the sizes that it declares."""
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        shape = (grid[0], grid[1], 1, block, 1, 1, 0)
        self.driver.call("cuLaunchKernel", function, *shape, None, pointers, None)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to the device."""
        self.driver.call("cuMemcpyHtoD_v2", address, ctypes.c_char_p(data), len(data))

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from the device, once all work before is done."""
        data = ctypes.create_string_buffer(size)
        self.driver.call("cuMemcpyDtoH_v2", data, address, size, what="reading a result back")
        return data.raw

    def seconds(self, work: Callable[[], None], repeats: int = 1) -> float:
        """Return how long one run of work took on the device, by its own clock."""
        begin, end = self.event_pair
        self.driver.call("cuEventRecord", begin, None)
        for _ in range(repeats):
            work()
        self.driver.call("cuEventRecord", end, None)
        self.driver.call("cuEventSynchronize", end, what="waiting for the device")
        elapsed = ctypes.c_float()
        self.driver.call("cuEventElapsedTime", ctypes.byref(elapsed), begin, end)
        # The clock's resolution is half a microsecond: nothing took less.
        return max(elapsed.value / 1000, 5e-7) / repeats
