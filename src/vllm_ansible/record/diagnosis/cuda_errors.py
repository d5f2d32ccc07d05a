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
    35: "CUDA driver version is insufficient for CUDA runtime version",
    36: "API call is not supported in the installed CUDA driver",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    205: "mapping of buffer object failed",
    209: "no kernel image is available for execution on the device",
    214: "uncorrectable ECC error encountered",
    217: "peer access is not supported between these two devices",
    222: "the provided PTX was compiled with an unsupported toolchain",
    400: "invalid resource handle",
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    716: "misaligned address",
    719: "unspecified launch failure",
    800: "operation not permitted",
    802: "system not yet initialized",
    803: "system has unsupported display driver / cuda driver combination",
    804: "forward compatibility was attempted on non supported HW",
    805: "MPS client failed to connect to the MPS control daemon or the MPS server",
    999: "unknown error",
}
# A text alone says enough only where CUDA is named before it.
_TEXT = re.compile(
    r"\b(?i:cuda)\b(?! error: )(?i:[^'\n]{0,80}?(?:error|failure)\b[^'\n]{0,100}?)(?:'|: )(?P<text>"
    + "|".join(re.escape(text) for text in _ERRORS.values())
    + r")\b"
)
_NUMBER = re.compile(r"(?i:\bcuda (?:runtime )?(?:error|failure) \(?)(?P<number>\d{1,3})\b")


def in_plain_words(text: str) -> str:
    """Return what torch would write of an error of CUDA in a text, or nothing."""
    if found := _TEXT.search(text):
        return f"CUDA error: {found['text']}"
    number = _NUMBER.search(text)
    return f"CUDA error: {_ERRORS[int(number[1])]}" if number and int(number[1]) in _ERRORS else ""
