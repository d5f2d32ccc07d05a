"""Read an error of CUDA however the program words it that met it.

torch writes `CUDA error: out of memory`, NCCL `Cuda failure 2 'out of memory'`, nccl-tests `Test
CUDA failure common.cu:892 'out of memory'`, older programs `cuda runtime error (2)`, kernels `Cuda
error file.cu:164 'out of memory'`. The number and the text are CUDA's own in all of them.
"""

from __future__ import annotations

import re

# Of the runtime's table, those that name a reason.
_ERRORS = {
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    9: "invalid configuration argument",
    35: "CUDA driver version is insufficient for CUDA runtime version",
    36: "API call is not supported in the installed CUDA driver",
    46: "all CUDA-capable devices are busy or unavailable",
    98: "invalid device function",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    200: "device kernel image is invalid",
    205: "mapping of buffer object failed",
    209: "no kernel image is available for execution on the device",
    214: "uncorrectable ECC error encountered",
    216: "exclusive-thread device already in use by a different thread",
    217: "peer access is not supported between these two devices",
    218: "a PTX JIT compilation failed",
    220: "uncorrectable NVLink error detected during the execution",
    221: "PTX JIT compiler library not found",
    222: "the provided PTX was compiled with an unsupported toolchain",
    302: "shared object symbol not found",
    303: "shared object initialization failed",
    304: "OS call failed or operation not supported on this OS",
    400: "invalid resource handle",
    401: "the operation cannot be performed in the present state",
    500: "named symbol not found",
    700: "an illegal memory access was encountered",
    701: "too many resources requested for launch",
    702: "the launch timed out and was terminated",
    704: "peer access is already enabled",
    705: "peer access has not been enabled",
    710: "device-side assert triggered",
    711: "peer mapping resources exhausted",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    719: "unspecified launch failure",
    720: "too many blocks in cooperative launch",
    800: "operation not permitted",
    801: "operation not supported",
    802: "system not yet initialized",
    803: "system has unsupported display driver / cuda driver combination",
    804: "forward compatibility was attempted on non supported HW",
    805: "MPS client failed to connect to the MPS control daemon or the MPS server",
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
    999: "unknown error",
}
# A text alone says enough only where CUDA is named before it.
_TEXT = re.compile(
    r"\b(?i:cuda)\b(?! error: )(?i:[^'\n]{0,80}?(?:error|failure)\b[^'\n]{0,100}?)(?:'|: )(?P<text>"
    + "|".join(re.escape(text) for text in sorted(_ERRORS.values(), key=len, reverse=True))
    + r")\b"
)
_NUMBER = re.compile(r"(?i:\bcuda (?:runtime )?(?:error|failure) \(?)(?P<number>\d{1,3})\b")


def in_plain_words(text: str) -> str:
    """Return what torch would write of an error of CUDA in a text, or nothing."""
    if found := _TEXT.search(text):
        return f"CUDA error: {found['text']}"
    number = _NUMBER.search(text)
    return f"CUDA error: {_ERRORS[int(number[1])]}" if number and int(number[1]) in _ERRORS else ""
