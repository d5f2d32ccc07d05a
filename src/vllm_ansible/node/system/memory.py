"""Huge pages that are set aside, and how large they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..kernel_files import number, text


def look(root: Path = Path("/")) -> dict[str, Any]:
    """Return size in KiB and number of huge pages, and the processors that may use them."""
    fields = {
        name: value.split()
        for name, _, value in (
            line.partition(":") for line in text(root / "proc/meminfo").splitlines()
        )
    }
    return {
        "page_kib": int(fields.get("Hugepagesize", ["0"])[0]),
        "pages": number(root / "proc/sys/vm/nr_hugepages"),
        "available_kib": int(fields.get("MemAvailable", ["0"])[0]),
        "processors": os.cpu_count() or 1,
    }
