"""Read the errors that NVIDIA's driver writes to the kernel log, and say what each asks for."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Iterable

KERNEL_LOG = "/dev/kmsg"
# NVRM: Xid (PCI:0000:3b:00): 79, pid=..., name=..., GPU has fallen off the bus.
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
# nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
SXID = re.compile(r"nvidia-nvswitch\d+: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+), (.*)")
# What a record of the kernel begins with: priority, sequence, microseconds since boot, flags.
RECORD = re.compile(r"^\d+,\d+,(\d+),[^;]*;")
# The same as dmesg prints it: seconds since boot.
STAMP = re.compile(r"^\[ *(\d+\.\d+)\] ")

# What NVIDIA says to do at once, and the verdict that it comes to here.
# isolate: give it no work, a person must look. reboot: the host. reset: the device, once it is
# idle. watch: the application was ended or nothing was lost; often is a sign, once is none.
ACTIONS = {
    "CHECK_MECHANICALS": "isolate",
    "CONTACT_SUPPORT": "isolate",
    "RESTART_BM": "reboot",
    "RESTART_VM": "reboot",
    "RESET_GPU": "reset",
    "WORKFLOW_XID_48": "reset",
    "WORKFLOW_NVLINK_ERR": "reset",
    "WORKFLOW_NVLINK5_ERR": "reset",
    "UPDATE_SWFW": "watch",
    "CHECK_UVM": "watch",
    "WORKFLOW_XID_45": "watch",
    "RESTART_APP": "watch",
    "IGNORE": "watch",
    "": "watch",
}
VERDICTS = ("isolate", "reboot", "reset", "watch")
# https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html: meaning, immediate action.
CATALOG = {
    8: ("GPU stopped processing", "RESTART_APP"),
    11: ("Invalid or corrupted push buffer stream", "RESTART_APP"),
    13: ("Graphics Engine Exception", "RESTART_APP"),
    25: ("Invalid or illegal push buffer stream", "RESTART_APP"),
    31: ("GPU memory page fault", "RESTART_APP"),
    32: ("Invalid or corrupted push buffer stream", "RESTART_APP"),
    37: ("Driver firmware error", "IGNORE"),
    38: ("Driver firmware error", "IGNORE"),
    **dict.fromkeys((39, 40, 41), ("Copy Engine Exception", "RESTART_APP")),
    43: ("GPU stopped processing", "IGNORE"),
    44: ("Graphics Engine fault during context switch", "IGNORE"),
    45: ("Preemptive cleanup, due to previous errors", "WORKFLOW_XID_45"),
    46: ("GPU stopped processing", "RESET_GPU"),
    48: ("Double Bit ECC Error", "WORKFLOW_XID_48"),
    54: ("Auxiliary power is not connected to the GPU board", "CHECK_MECHANICALS"),
    62: ("Internal micro-controller halt", "RESET_GPU"),
    63: ("GPU memory remapping event", "IGNORE"),
    64: ("GPU memory remapping failure", "RESET_GPU"),
    66: ("Illegal access by driver", "IGNORE"),
    67: ("Illegal access by driver", "IGNORE"),
    68: ("NVDEC0 Exception", "RESTART_APP"),
    69: ("Graphics Engine class error", "RESTART_APP"),
    **dict.fromkeys((70, 71, 72, 75, 76, 77, 85), ("Copy Engine: Unknown Error", "RESTART_APP")),
    74: ("NVLINK Error", "WORKFLOW_NVLINK_ERR"),
    78: ("vGPU Start Error", "UPDATE_SWFW"),
    79: ("GPU has fallen off the bus", "RESTART_BM"),
    80: ("Corrupted data sent to GPU", "RESTART_APP"),
    92: ("High single-bit ECC error rate", "IGNORE"),
    93: ("Non-fatal violation of provisioned InfoROM wear limit", "IGNORE"),
    94: ("Contained memory error", "RESTART_APP"),
    95: ("Uncontained memory error", "RESET_GPU"),
    109: ("Context Switch Timeout Error", "RESET_GPU"),
    110: ("Security Fault Error", "RESET_GPU"),
    119: ("GSP RPC Timeout", "RESET_GPU"),
    120: ("GSP Error", "RESET_GPU"),
    121: ("C2C Error", "IGNORE"),
    136: ("Link Training Failed", "RESET_GPU"),
    137: ("NVLink Privilege Error", "IGNORE"),
    140: ("ECC Unrecovered Error", "RESET_GPU"),
    141: ("CUDA Fast Path Error", "IGNORE"),
    143: ("GPU Initialization Error", "RESET_GPU"),
    144: ("NVLINK: SAW Error", "WORKFLOW_NVLINK5_ERR"),
    145: ("NVLINK: RLW Error", "WORKFLOW_NVLINK5_ERR"),
    146: ("NVLINK: TLW Error", "WORKFLOW_NVLINK5_ERR"),
    147: ("NVLINK: TREX Error", "WORKFLOW_NVLINK5_ERR"),
    148: ("NVLINK: NVLPW_CTRL Error", "WORKFLOW_NVLINK5_ERR"),
    149: ("NVLINK: NETIR Error", "WORKFLOW_NVLINK5_ERR"),
    150: ("NVLINK: MSE Error", "WORKFLOW_NVLINK5_ERR"),
    151: ("Key rotation Error", "RESTART_VM"),
    154: ("GPU Recovery Action Changed", ""),
    155: ("NVLINK: SW Defined Error", "RESET_GPU"),
    156: ("Resource Retirement Event", "RESET_GPU"),
    157: ("Resource Retirement Failure", "IGNORE"),
    158: ("GPU Fatal Timeout", "RESET_GPU"),
    159: ("CHI Non-Data Error", "CHECK_UVM"),
    160: ("Channel Retirement Event", "IGNORE"),
    161: ("Channel Retirement Failure", "IGNORE"),
    167: ("PCIe Fatal Timeout", ""),
    169: ("Internal micro-controller halt", ""),
    171: ("Uncorrectable DRAM error, beside Xid 48", ""),
    172: ("Uncorrectable SRAM error, beside Xid 48", ""),
}
# Where the action at once is not the end of it: a reset does not give back a row that could not
# be remapped (NVIDIA GPU Memory Error Management asks for a field diagnosis).
OVERRIDES = {64: "isolate"}
# Xid 154 says in words what the errors before it come to: the last in parentheses.
RECOVERY = {
    "None": "watch",
    "Drain P2P": "isolate",
    "Drain and Reset": "reset",
    "GPU Reset Required": "reset",
    "Node Reboot Required": "reboot",
}


def classify(line: str) -> dict[str, Any] | None:
    """Return what a line of the kernel log says of a device; None if it is no Xid or SXid."""
    if switch := SXID.search(line):
        pci, code, text = switch.groups()
        # Fabric manager ends what used the fabric, and resets devices and switches together.
        fatal = text.lower().startswith("fatal")
        verdict = "reset" if fatal else "watch"
        words = f"NVSwitch error, {'fatal' if fatal else 'not fatal'}"
        return _found("SXid", pci, int(code), words, verdict, "", text)
    xid = XID.search(line)
    if xid is None:
        return None
    pci, number, text = xid.groups(default="")
    code = int(number)
    meaning, action = CATALOG.get(code, ("not among the errors that NVIDIA describes", ""))
    verdict = OVERRIDES.get(code, ACTIONS[action])
    if code == 154:
        verdict = RECOVERY.get(text.rpartition("(")[2].rstrip(") ."), "watch")
    return _found("Xid", pci, code, meaning, verdict, action, text)


def _found(
    kind: str, pci: str, code: int, meaning: str, verdict: str, action: str, text: str
) -> dict[str, Any]:
    return {
        "kind": kind,
        "pci": pci.lower(),
        "code": code,
        "meaning": meaning,
        "verdict": verdict,
        "action": action,
        "text": text,
    }


def classified(log: Iterable[str]) -> list[dict[str, Any]]:
    """Return each error of each device once, with how often it came and when and how it last did.

    `at` is in seconds since boot, and missing where the log has no such times.
    """
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in log:
        one = classify(line)
        if one is not None:
            key = (one["kind"], one["pci"], one["code"], one["verdict"])
            before = seen.pop(key, {"times": 0})
            seen[key] = {**one, "times": before["times"] + 1}
            if stamp := STAMP.match(line):
                seen[key]["at"] = float(stamp.group(1))
    return list(seen.values())


def worst(errors: Iterable[dict[str, Any]]) -> str | None:
    """Return the verdict that asks for most; None if there are none."""
    return min((one["verdict"] for one in errors), key=VERDICTS.index, default=None)


def kernel_log(path: str = KERNEL_LOG) -> list[str]:
    """Return the messages that the kernel still holds; OSError where they may not be read."""
    found = []
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(file, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # it was overwritten meanwhile: the next read goes on after it
            if not record:
                break
            text = record.decode("utf-8", "replace")
            found += [RECORD.sub(_stamp, line) for line in text.splitlines()]
    finally:
        os.close(file)
    return found


def _stamp(record: re.Match[str]) -> str:
    return f"[{int(record.group(1)) / 1e6:.6f}] "


def log_errors(path: str = KERNEL_LOG) -> dict[str, Any]:
    """Return the classified errors of the kernel log since boot, or why it could not be read."""
    try:
        errors = classified(kernel_log(path))
    except OSError as error:
        return {"readable": False, "why": f"{path}: {error.strerror}", "errors": []}
    now = round(time.monotonic(), 3)
    return {"readable": True, "now": now, "errors": errors, "verdict": worst(errors)}
