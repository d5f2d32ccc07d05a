"""What the host's own name leads to, and what its hosts file says."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from ..kernel_files import text


def look(root: Path = Path("/")) -> dict[str, Any]:
    """Return the host's name, the addresses it resolves to, and the text of the hosts file."""
    name = socket.gethostname()
    return {
        "name": name,
        "addresses": addresses(name),
        "hosts_file": text(root / "etc/hosts") + "\n",
        "rewritten_at_boot": rewritten_at_boot(root),
    }


def addresses(name: str) -> list[str]:
    """Return what a name resolves to, as programs on this host see it."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(entry[4][0]) for entry in found})


def rewritten_at_boot(root: Path) -> bool:
    """Tell whether cloud-init writes the hosts file anew at every boot."""
    places = [root / "etc/cloud/cloud.cfg", *(root / "etc/cloud/cloud.cfg.d").glob("*.cfg")]
    lines = (line.split("#")[0] for place in places for line in text(place).splitlines())
    values = [
        value.strip().lower()
        for key, _, value in (line.partition(":") for line in lines)
        if key.strip() == "manage_etc_hosts"
    ]
    return bool(values) and values[-1] in ("true", "localhost", "template")
