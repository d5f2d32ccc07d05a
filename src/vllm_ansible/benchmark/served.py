"""Which engines a host is asked about: those whose API it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.planner.plan import digest


def served_on(plan: Mapping[str, Any], host: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what engine_benchmark wants to know of each engine that a host serves."""
    return [
        {
            "name": engine["name"],
            "served_name": engine["served_name"],
            "url": f"http://{host['address']}:{engine['ports']['api']}",
            # Reasons are words for people, and change without anything else.
            "digest": digest({key: value for key, value in engine.items() if key != "reasons"}),
        }
        for engine in plan.get("engines", ())
        if engine["hosts"][0] == host["name"]
    ]
