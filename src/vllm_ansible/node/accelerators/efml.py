"""Memory errors of Enflame devices, from libefml.so by ctypes.

efsmi tells no counter of corrected errors. The calls and the layout of efmlEccStatus_t are those of
efml.h in Enflame's go-eflib, which its exporter is built on; they are the same in the header of
2019 and in that of 2025. A child asks: a device that hangs, or breaks the library, must not do so
to the look.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from .. import forked

LIBRARY = "libefml.so"
TIMEOUT_SECONDS = 30


class _EccStatus(ctypes.Structure):
    _fields_ = [
        ("enabled", ctypes.c_bool),
        ("pending", ctypes.c_bool),
        ("blacklisted", ctypes.c_bool),
        ("single", ctypes.c_uint32),
        ("double", ctypes.c_uint32),
    ]


def ecc_errors(devices: list[int]) -> list[Optional[dict[str, int]]]:
    """Return single-bit and double-bit errors of each device by its number; None where not told."""

    def work(tell: forked.Tell) -> None:
        _each(devices, tell)

    # Why a child told less than it had to is no concern: what it told holds.
    told = forked.run_each([work], TIMEOUT_SECONDS, OSError)[0] if devices else {}
    return [told.get(str(number)) for number in devices]


def _each(devices: list[int], tell: forked.Tell) -> None:
    """Tell the errors of each device under its number. Raises OSError without the library."""
    library = ctypes.CDLL(LIBRARY)
    # The argument is whether the library goes without its driver.
    if library.EfmlInit(ctypes.c_bool(False)) != 0:
        return
    for number in devices:
        tell(str(number), _of(library, number))
    library.EfmlShutdown()


def _of(library: Any, index: int) -> Optional[dict[str, int]]:
    found = _EccStatus()
    if library.EfmlGetDevEccStatus(ctypes.c_uint32(index), ctypes.byref(found)) != 0:
        return None
    return {"single": found.single, "double": found.double}
