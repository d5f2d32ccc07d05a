"""What ranks of a measurement get of the engines' environment, so that both take the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vllm_ansible.accelerators.platform import device_variables
from vllm_ansible.plan.engines import environment_text

# A measurement has a rank for each device, and reads the way that was taken out of NCCL's log.
OURS = (*device_variables(), "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")


def of_engines(engines: Iterable[Mapping[str, Any]], host: str) -> dict[str, str]:
    """Return the environment of the engines of a host; of two that differ the first one's holds."""
    found: dict[str, str] = {}
    for engine in engines:
        if engine.get("hosts") and host not in engine["hosts"]:
            continue
        for name, value in (engine.get("environment") or {}).items():
            if name not in OURS:
                found.setdefault(str(name), environment_text(value))
    return found
