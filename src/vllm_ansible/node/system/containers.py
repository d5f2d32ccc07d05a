"""Container runtimes, and whether they can hand out accelerators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..accelerators.catalogue import PLATFORMS
from ..kernel_files import text
from .tool import Tools

DAEMON = "etc/docker/daemon.json"


def look(tools: Tools, root: Path = Path("/")) -> dict[str, Any]:
    """Return the runtimes that are there, Docker's settings, and the toolkit with its devices."""
    settings = text(root / DAEMON)
    return {
        "docker": tools.find("docker") is not None,
        "podman": tools.find("podman") is not None,
        "docker_control_groups": (
            tools.ask("docker", "info", "--format", "{{.CgroupDriver}}") or ""
        ).strip(),
        "docker_running": len((tools.ask("docker", "ps", "--quiet") or "").split()),
        "docker_settings": parsed(settings),
        "toolkit": any(
            tools.find(one.container_tool) is not None for one in PLATFORMS if one.container_tool
        ),
        "device_lists": [
            f"/{place}"
            for one in PLATFORMS
            for place in one.device_lists
            if (root / place).exists()
        ],
    }


def parsed(settings: str) -> Any:
    """Return Docker's settings; empty ones where there is no file, None where it is no JSON."""
    try:
        return json.loads(settings or "{}")
    except ValueError:
        return None
