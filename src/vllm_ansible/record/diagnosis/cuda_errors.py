"""Read an error of CUDA however the program words it that met it.

torch writes `CUDA error: out of memory`, NCCL `Cuda failure 2 'out of memory'`, nccl-tests `Test
CUDA failure common.cu:892 'out of memory'`, older programs `cuda runtime error (2)`, kernels `Cuda
error file.cu:164 'out of memory'`. The number and the text are CUDA's own in all of them.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress

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
# The names of the runtime and of the driver for them, as bindings print them.
_NAMES = {
    "InvalidValue": 1,
    "INVALID_VALUE": 1,
    "MemoryAllocation": 2,
    "OUT_OF_MEMORY": 2,
    "InitializationError": 3,
    "NOT_INITIALIZED": 3,
    "InvalidConfiguration": 9,
    "InsufficientDriver": 35,
    "DevicesUnavailable": 46,
    "DEVICE_UNAVAILABLE": 46,
    "InvalidDeviceFunction": 98,
    "NoDevice": 100,
    "NO_DEVICE": 100,
    "InvalidDevice": 101,
    "INVALID_DEVICE": 101,
    "InvalidKernelImage": 200,
    "INVALID_IMAGE": 200,
    "NoKernelImageForDevice": 209,
    "NO_BINARY_FOR_GPU": 209,
    "ECCUncorrectable": 214,
    "ECC_UNCORRECTABLE": 214,
    "PeerAccessUnsupported": 217,
    "PEER_ACCESS_UNSUPPORTED": 217,
    "InvalidPtx": 218,
    "INVALID_PTX": 218,
    "NvlinkUncorrectable": 220,
    "NVLINK_UNCORRECTABLE": 220,
    "UnsupportedPtxVersion": 222,
    "UNSUPPORTED_PTX_VERSION": 222,
    "InvalidResourceHandle": 400,
    "INVALID_HANDLE": 400,
    "IllegalState": 401,
    "ILLEGAL_STATE": 401,
    "SymbolNotFound": 500,
    "IllegalAddress": 700,
    "ILLEGAL_ADDRESS": 700,
    "LaunchOutOfResources": 701,
    "LAUNCH_OUT_OF_RESOURCES": 701,
    "LaunchTimeout": 702,
    "LAUNCH_TIMEOUT": 702,
    "Assert": 710,
    "ASSERT": 710,
    "TooManyPeers": 711,
    "TOO_MANY_PEERS": 711,
    "MisalignedAddress": 716,
    "MISALIGNED_ADDRESS": 716,
    "LaunchFailure": 719,
    "LAUNCH_FAILED": 719,
    "NotPermitted": 800,
    "NOT_PERMITTED": 800,
    "NotSupported": 801,
    "NOT_SUPPORTED": 801,
    "SystemNotReady": 802,
    "SYSTEM_NOT_READY": 802,
    "SystemDriverMismatch": 803,
    "SYSTEM_DRIVER_MISMATCH": 803,
    "CompatNotSupportedOnDevice": 804,
    "COMPAT_NOT_SUPPORTED_ON_DEVICE": 804,
    "MpsConnectionFailed": 805,
    "Unknown": 999,
    "UNKNOWN": 999,
}
# A text alone says enough only where CUDA is named before it.
_TEXT = re.compile(
    r"\b(?i:cuda)\b(?! error: )(?i:[^'\n]{0,80}?(?:error|failure)\b[^'\n]{0,100}?)(?:'|: )(?P<text>"
    + "|".join(re.escape(text) for text in sorted(_ERRORS.values(), key=len, reverse=True))
    + r")\b"
)
_NUMBER = re.compile(r"(?i:\bcuda (?:runtime )?(?:error|failure) \(?)(?P<number>\d{1,3})\b")
_NAME = re.compile(r"\b(?:cudaError|CUDA_ERROR_)(?P<name>[A-Za-z]\w+)\b")
# What NCCL's numbers stand for, where its text is not beside them.
_OF_NCCL = {
    1: "unhandled cuda error",
    2: "unhandled system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process exited or there was a network error",
}
_NCCL = re.compile(
    r"(?i:\bnccl\w* ?(?:error|result|failure)(?: code)?[:=]? ?\(?)(?P<number>[1-6])\b(?! ')"
)
# An errno without its text: "errno: 28", "[Errno 28]", "RC: -12".
_ERRNO = re.compile(
    r"\b(?:errno[ :=]{1,3}|RC: )-?(?P<number>\d{1,3})\b(?!,? ?[A-Za-z(])"
    r"|\[Errno (?P<alone>\d{1,3})\]$"
)

# A signal by its number, as launchers write it that wait for a process: "signal 9", "(signal: 11",
# "exit code: -7". Without the exit a negative number is one of the kernel or of a library.
_SIGNAL = re.compile(
    r"\b[Ss]ignal[:=]? ?\(?(?P<number>\d{1,2})\b(?! ?\()"
    r"|\b(?:[Ee]xit(?:ed)?|[Rr]eturn)[ _]?(?:with )?(?:status|code)[ =:]+-(?P<exit>\d{1,2})\b"
)


def in_plain_words(text: str) -> str:
    """Return what torch would write of an error of CUDA in a text, or nothing."""
    if found := _TEXT.search(text):
        return f"CUDA error: {found['text']}"
    if (name := _NAME.search(text)) and name["name"] in _NAMES:
        return f"CUDA error: {_ERRORS[_NAMES[name['name']]]}"
    number = _NUMBER.search(text)
    return f"CUDA error: {_ERRORS[int(number[1])]}" if number and int(number[1]) in _ERRORS else ""


def numbers_in_words(text: str) -> str:
    """Return what numbers of NCCL, of the system and of signals stand for in a text, or nothing."""
    found = []
    if number := _NCCL.search(text):
        found.append(f"NCCL error: {_OF_NCCL[int(number['number'])]}")
    if number := _ERRNO.search(text):
        found.append(os.strerror(int(number["number"] or number["alone"])))
    if number := _SIGNAL.search(text):
        with suppress(ValueError):
            found.append(signal.Signals(int(number["number"] or number["exit"])).name)
    return "; ".join(found)
