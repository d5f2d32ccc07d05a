"""Amazon's Elastic Fabric Adapter: cards, and the software that Amazon's installer brings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..kernel_files import names, text

INFINIBAND, PCI = "sys/class/infiniband", "sys/bus/pci/devices"
# Amazon's vendor number; every EFA card's device number begins alike.
AMAZON, CARD = "0x1d0f", "0xefa"
INSTALLED = "opt/amazon/efa_installed_packages"
VERSION = re.compile(r"EFA installer version: *(\d+(?:\.\d+)+)")
# By distribution and by age of the installer; earlier images of AWS have the last one.
LIBRARIES = ("opt/amazon/efa/lib", "opt/amazon/efa/lib64")
PLUGINS = (
    "opt/amazon/ofi-nccl/lib",
    "opt/amazon/ofi-nccl/lib64",
    "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "opt/amazon/ofi-nccl/lib/aarch64-linux-gnu",
    "opt/aws-ofi-nccl/lib",
)
# aws-ofi-nccl has the first name since 1.15; NCCL looks for the second where it is told none.
NAMED, UNNAMED = "libnccl-net-ofi.so", "libnccl-net.so"
PRODUCT = "sys/devices/virtual/dmi/id/product_name"


def is_card(device: Path) -> bool:
    """Tell whether a PCI function is an EFA card."""
    return text(device / "vendor") == AMAZON and text(device / "device").startswith(CARD)


def cards(root: Path = Path("/")) -> list[str]:
    """Return the names of the cards that have a driver, as RDMA devices."""
    top = root / INFINIBAND
    return [name for name in names(top) if is_card(top / name / "device")]


def look(root: Path = Path("/")) -> dict[str, Any]:
    """Return how many cards there are, and where the libraries lie; no program is run.

    `on_the_bus` counts cards without a driver too. `libfabric` and `plugin` are the directory of
    libfabric.so.1 and the file of NCCL's plugin, empty where there is none.
    """
    bus = root / PCI
    installed = VERSION.search(text(root / INSTALLED))
    return {
        "machine": text(root / PRODUCT),
        "cards": len(cards(root)),
        "on_the_bus": sum(is_card(bus / name) for name in names(bus)),
        "installer": installed[1] if installed else "",
        "libfabric": next(
            (f"/{place}" for place in LIBRARIES if (root / place / "libfabric.so.1").exists()), ""
        ),
        "plugin": next(
            (
                f"/{place}/{name}"
                for name in (NAMED, UNNAMED)
                for place in PLUGINS
                if (root / place / name).exists()
            ),
            "",
        ),
    }
