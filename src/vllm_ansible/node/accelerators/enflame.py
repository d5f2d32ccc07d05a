"""Enflame devices as their driver and the vendor's efsmi show them.

Where the fields come from: `efsmi -q` of drivers 1.2.4.12 and 1.4.3.4 on S60, as ZStack's GPU agent
quotes it (zstack-utility, zstacklib/gpu, "Enflame"), and the banner of `efsmi` as FlagTree's and
PaddlePaddle's installation guides print it. Later drivers say Total, Used and Free Size where
earlier ones say Mem Size and Mem Usage. No field is read that none of these shows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Optional

from ..kernel_files import text

# KrakenPlug takes /usr/sbin/efsmi, others /usr/bin/efsmi; a login without root may lack the first.
PLACES = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
TOOL = "efsmi"
# A device that hangs must not hang the look.
TIMEOUT_SECONDS = 60
# "|EFSMI    V1.2.0.301       Driver Ver: 1.2.0.301", or "| EFSMI: 1.6.3.12   Driver Ver: ...".
BANNER = re.compile(r"EFSMI:?\s+V?(\d[\d.]*)\s+Driver Ver:\s*(\d[\d.]*)")
NODE = re.compile(r"/dev/gcu(\d+)")
# What a host of containers carries of the vendor's toolkit, by the names of its packages.
PACKAGES = ("topsruntime", "enflame-container-toolkit")
MIB = 1 << 20


def place() -> Optional[str]:
    """Return where efsmi lies; None where it is not installed."""
    return shutil.which(TOOL, path=PLACES)


def ask(*arguments: str) -> Optional[str]:
    """Return what efsmi prints; None where it is absent, fails or does not end in time."""
    tool = place()
    if tool is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - found at the vendor's places, fixed arguments
            [tool, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def tool_version(banner: Optional[str]) -> str:
    """Return the version of efsmi from what it prints without arguments; empty where it is none."""
    found = BANNER.search(banner or "")
    return found[1] if found else ""


def devices(told: Optional[str]) -> list[dict[str, Any]]:
    """Return each device of `efsmi -q`; sizes in bytes, temperature in degrees Celsius.

    What efsmi leaves out or says in other words is None, or empty where it is a text.
    """
    found = []
    for block in re.split(r"^DEV ID\s+", told or "", flags=re.MULTILINE)[1:]:
        index, _, rest = block.partition("\n")
        if index.strip().isdigit():
            found.append(_device(int(index), _fields(rest)))
    return found


def _fields(block: str) -> dict[tuple[str, str], str]:
    """Return values by section and key: "Current" stands under the heading "ECC Mode"."""
    heading, found = "", {}
    for line in block.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found[heading, key.strip()] = value.strip()
        elif line.strip():
            heading = line.strip()
    return found


def _device(index: int, said: dict[tuple[str, str], str]) -> dict[str, Any]:
    def tell(*names: str) -> str:
        return next((value for (_, key), value in said.items() if key in names), "")

    memory = _memory(tell)
    bus = [tell(name) for name in ("Domain", "Bus", "Dev", "Func")]
    return {
        "index": index,
        "name": tell("Dev Name"),
        "serial": tell("Dev SN"),
        "pci": f"{bus[0].zfill(4)[-4:]}:{bus[1].zfill(2)}:{bus[2].zfill(2)}.{bus[3]}"
        if all(bus)
        else "",
        "driver": tell("Ver"),
        "memory": memory,
        "memory_bytes": memory["total"] or 0,
        "link": {
            "width": _number(tell("Cur Link Width")),
            "most_width": _number(tell("Max Link Width")),
            "generation": _number(tell("Cur Link Speed")),
            "most_generation": _number(tell("Max Link Speed")),
        },
        "temperature": _number(tell("GCU Temp")),
        # The vendor's word; its exporter's is always that all is well.
        "told_healthy": _word(tell("Health")),
        "ecc": _word(said.get(("ECC Mode", "Current"), "") or tell("Mem Ecc")),
        "replace": _word(said.get(("RMA Info", "Flags"), "")),
        "double_bit_ever": _number(tell("Total DBE", "DBE")),
    }


def _memory(tell: Any) -> dict[str, Optional[int]]:
    total, used = _mib(tell("Total Size", "Mem Size")), _mib(tell("Used Size", "Mem Usage"))
    free = _mib(tell("Free Size"))
    if free is None and total is not None and used is not None:
        free = total - used
    sizes = {"total": total, "used": used, "free": free}
    return {name: None if size is None else int(size * MIB) for name, size in sizes.items()}


def _number(value: str) -> Optional[float]:
    found = re.search(r"\d+(?:\.\d+)?", value)
    return float(found[0]) if found else None


def _mib(value: str) -> Optional[float]:
    """Return a size in MiB; another unit was never seen, and is not taken for that one."""
    return _number(value) if value.endswith("MiB") else None


def _word(value: str) -> Optional[bool]:
    words = {"true": True, "enable": True, "false": False, "disable": False}
    return words.get(value.lower())


def nodes(root: Path = Path("/")) -> list[int]:
    """Return the numbers of the devices that the driver opened: /dev/gcu0 and on."""
    found = (NODE.fullmatch(f"/dev/{one.name}") for one in (root / "dev").glob("gcu*"))
    return sorted(int(one[1]) for one in found if one)


def toolkit(root: Path = Path("/")) -> dict[str, str]:
    """Return the versions of the toolkit's installed packages, as dpkg keeps them."""
    found = {}
    for entry in text(root / "var/lib/dpkg/status").split("\n\n"):
        said = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line)
        if said.get("Package") in PACKAGES and said.get("Status", "").endswith(" installed"):
            found[said["Package"]] = said.get("Version", "")
    return found
