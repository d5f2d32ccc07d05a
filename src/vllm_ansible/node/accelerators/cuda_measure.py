"""Measure one NVIDIA device and check all that it computed; rates are medians of several runs."""

from __future__ import annotations

import ctypes
import os
import statistics
import struct
import time
from typing import Any, Callable

from .cuda_driver import CudaError, Session
from .cuda_kernels import PATTERN
from .cuda_matmul import FORMULA, FP32, LEFT, RIGHT, product_table
from .cuda_tensor import BF16
from .nvml import Nvml

LEAST_BYTES, HOST_BYTES = 64 << 20, 64 << 20
SIZES = (4096, 2048, 1024)
SAMPLES, SAMPLE_SECONDS = 5, 0.02
FLIPS = (0, 0xFFFFFFFF)
U32, U64 = ctypes.c_uint32, ctypes.c_uint64
MULTIPROCESSORS, MAJOR = 16, 75


class Device:
    """A session with its working memory and the time by which measuring is over."""

    def __init__(
        self, session: Session, size: int, seconds: float, nvml: Nvml | None = None
    ) -> None:
        self.session, self.nvml = session, nvml
        self.until = time.monotonic() + seconds
        self.grid = (32 * session.attribute(MULTIPROCESSORS), 1)
        free = session.free_bytes()
        self.size = min(size, free * 8 // 10) // LEAST_BYTES * LEAST_BYTES
        if not self.size:
            raise CudaError(f"only {free} bytes of device {session.index} are free: others hold it")
        self.memory, self.result = session.allocate(self.size), session.allocate(24)
        self.fill, self.check, self.sum = session.functions(PATTERN, "fill", "check", "sum")

    def rate(self, work: Callable[[], None], amount: float) -> float:
        """Return amounts per second: the median of samples, the first run not counted."""
        self.session.seconds(work)
        one = self.session.seconds(work)
        repeats = max(1, min(1000, int(SAMPLE_SECONDS / one)))
        samples = [self.session.seconds(work, repeats)]
        while len(samples) < SAMPLES and time.monotonic() < self.until:
            samples.append(self.session.seconds(work, repeats))
        return amount / statistics.median(samples)

    def compared(self, kernel: ctypes.c_void_p, *arguments: Any) -> tuple[int, int, int]:
        """Run a kernel that compares: return how many differ, the first of them, and its bits."""
        self.session.write(self.result, struct.pack("<3Q", 0, (1 << 64) - 1, 0))
        self.session.launch(kernel, self.grid, *arguments, U64(self.result))
        count, first, bits = struct.unpack("<3Q", self.session.read(self.result, 24))
        return count, first, bits

    def pattern(self, kernel: ctypes.c_void_p, seed: int, flip: int = 0) -> tuple[int, int, int]:
        """Fill the memory with a pattern, or compare it with one."""
        words = self.size // 4
        arguments = (U64(self.memory), U64(words), U32(seed), U32(flip))
        if kernel is self.check:
            return self.compared(kernel, *arguments)
        self.session.launch(kernel, self.grid, *arguments)
        return 0, 0, 0


def memory(device: Device) -> dict[str, Any]:
    """Write patterns over the memory and read them back; then plant a wrong bit to be found."""
    wrong, first, bits, passes = 0, None, 0, 0
    for seed in range(1, 5):
        # Every bit is once 0 and once 1, in a word that no other address holds.
        for flip in FLIPS:
            device.pattern(device.fill, seed, flip)
            count, place, differing = device.pattern(device.check, seed, flip)
            wrong, bits, passes = wrong + count, bits | differing, passes + 1
            first = place * 4 if count and first is None else first
        if time.monotonic() > device.until:
            break
    place = device.size // 4 // 3
    address = device.memory + 4 * place
    (word,) = struct.unpack("<I", device.session.read(address, 4))
    device.session.write(address, struct.pack("<I", word ^ 1 << 13))
    count, found, differing = device.pattern(device.check, seed, FLIPS[-1])
    return {
        "bytes": device.size,
        "passes": passes,
        "wrong_words": wrong,
        "first_wrong_byte": first,
        "wrong_bits": f"0x{bits:08x}",
        # What finds nothing proves something only if it finds what is there.
        "planted_bit_found": bool(wrong) or (count, found, differing) == (1, place, 1 << 13),
    }


def bandwidth(device: Device) -> dict[str, Any]:
    """Read the device's memory and copy within it; a copy counts what is read and what written."""
    session, half, word = device.session, device.size // 2, 0x01010101
    session.driver.call("cuMemsetD32_v2", device.memory, word, device.size // 4)

    def read() -> None:
        arguments = (U64(device.memory), U64(device.size // 16), U64(device.result))
        session.launch(device.sum, device.grid, *arguments)

    def copy() -> None:
        session.driver.call("cuMemcpyDtoDAsync_v2", device.memory + half, device.memory, half, None)

    session.write(device.result, bytes(8))
    read()
    (total,) = struct.unpack("<I", session.read(device.result, 4))
    return {
        "bytes": device.size,
        "read_gb_per_s": round(device.rate(read, device.size) / 1e9, 1),
        "copy_gb_per_s": round(device.rate(copy, 2 * half) / 1e9, 1),
        "exact": total == word * (device.size // 4) % (1 << 32),
    }


def matmul(device: Device, ptx: str, width: int) -> dict[str, Any]:
    """Multiply matrices and compare every element; width is the bytes of an input's element."""
    session = device.session
    # What fits beside the table; the result is fp32 whatever the inputs are.
    n = next(n for n in SIZES if (2 * width + 4) * n * n <= device.size)
    left, right = device.memory, device.memory + width * n * n
    product = right + width * n * n
    fill, verify, multiply = session.functions(ptx, "inputs", "verify", "multiply")
    session.driver.call("cuMemsetD8_v2", product, 0xFF, 4 * n * n)
    for address, matrix in ((left, LEFT), (right, RIGHT)):
        formula = [U32(matrix[name]) for name in FORMULA]
        session.launch(fill, device.grid, U64(address), U32(n), U32(width == 4), *formula)
    table = product_table(n)
    wanted = session.allocate(len(table))
    session.write(wanted, table)

    def work() -> None:
        arguments = (U64(left), U64(right), U64(product), U32(n))
        session.launch(multiply, (n // 128, n // 128), *arguments)

    rate = device.rate(work, 2 * n**3)
    # Read while it works: what slows a device shows only then.
    for _ in range(max(1, min(1000, int(0.2 * rate / (2 * n**3))))):
        work()
    under_load = device.nvml.load() if device.nvml else {}
    wrong, first, _ = device.compared(verify, U64(product), U64(wanted), U32(n))
    return {
        "size": n,
        "tflops": round(rate / 1e12, 2),
        "wrong_elements": wrong,
        "first_wrong": [first // n, first % n] if wrong else None,
        "under_load": under_load,
    }


def matmul_fp32(device: Device) -> dict[str, Any]:
    """Multiply in fp32 by the ordinary cores."""
    return matmul(device, FP32, 4)


def matmul_bf16(device: Device) -> dict[str, Any]:
    """Multiply in bf16 by the tensor cores, with instructions that do not reach their peak."""
    if device.session.attribute(MAJOR) < 8:
        return {"skipped": "needs compute capability 8.0"}
    return matmul(device, BF16, 2)


def host_link(device: Device) -> dict[str, Any]:
    """Copy between the device and pinned memory of the host, both ways, and compare."""
    session, call = device.session, device.session.driver.call
    out, back = session.pinned(HOST_BYTES), session.pinned(HOST_BYTES)
    ctypes.memmove(out, os.urandom(1 << 20) * (HOST_BYTES >> 20), HOST_BYTES)

    def send() -> None:
        call("cuMemcpyHtoDAsync_v2", device.memory, out, HOST_BYTES, None)

    def fetch() -> None:
        call("cuMemcpyDtoHAsync_v2", back, device.memory, HOST_BYTES, None)

    return {
        "bytes": HOST_BYTES,
        "to_device_gb_per_s": round(device.rate(send, HOST_BYTES) / 1e9, 1),
        "to_host_gb_per_s": round(device.rate(fetch, HOST_BYTES) / 1e9, 1),
        "exact": ctypes.string_at(out, HOST_BYTES) == ctypes.string_at(back, HOST_BYTES),
    }


MEASURES: tuple[Callable[[Device], dict[str, Any]], ...] = (
    memory,
    matmul_fp32,
    matmul_bf16,
    bandwidth,
    host_link,
)
