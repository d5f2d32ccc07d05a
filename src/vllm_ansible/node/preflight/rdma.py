"""InfiniBand, RoCE and EFA cards as the kernel lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..kernel_files import names, number, text
from ..system.efa_cards import is_card

TOP = "sys/class/infiniband"
COUNTERS = ("symbol_error", "link_downed", "port_rcv_errors")


def port(top: Path) -> dict[str, Any]:
    """Return state, link layer, rate and error counters of one port.

    rate is as the kernel writes it, like `400 Gb/sec (4X NDR)`.
    """
    return {
        # 4: ACTIVE
        "state": text(top / "state").partition(": ")[2],
        "physical": text(top / "phys_state").partition(": ")[2],
        "link_layer": text(top / "link_layer"),
        "rate": text(top / "rate"),
        "errors": {
            name: count
            for name in COUNTERS
            if (count := number(top / "counters" / name)) is not None
        },
    }


def look(root: Path = Path("/")) -> dict[str, Any]:
    """Return every card with its ports, by name, and whether it is an EFA."""
    top = root / TOP
    return {
        name: {
            "efa": is_card(top / name / "device"),
            "ports": {
                number: port(top / name / "ports" / number)
                for number in names(top / name / "ports")
            },
        }
        for name in names(top)
    }
