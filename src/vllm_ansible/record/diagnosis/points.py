"""The known failures as a ladder reads them, on a host that has no YAML."""

from __future__ import annotations

from vllm_ansible.node.watchdog.ladder import Point

from .match import signatures


def points() -> dict[str, Point]:
    """Return the line of each known failure, by its name."""
    return {
        one.id: Point(
            one.id,
            one.pattern.pattern,
            one.beside.pattern if one.beside else "",
            one.unless.pattern if one.unless else "",
        )
        for one in signatures()
        if one.pattern
    }
