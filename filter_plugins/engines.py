"""Jinja filters over the plan: what one host or one task needs to see of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.computation import reference, verdict
from vllm_ansible.computation.conditions import conditions
from vllm_ansible.inventory.site_host import supervisor_dir
from vllm_ansible.plan import first_start, ladder, restarts, servers, verbs, views, watched
from vllm_ansible.record.diagnosis.points import points
from vllm_ansible.weights import loading


def known_start(
    kept: dict[str, Any],
    server: dict[str, Any],
    engines: list[dict[str, Any]],
    models: dict[str, Any],
    version: str,
    accelerator: str,
) -> str:
    """Return the start of a server that need not be asked again, empty where there is none."""
    engine = next(one for one in engines if one["name"] == server["engine"])
    same = conditions(engine, version, accelerator, models.get(server["entry"]))
    return verdict.known_start(kept, server["name"], same)[0]


def watchdog_restarts(
    engines: list[dict[str, Any]],
    hosts: list[dict[str, Any]],
    host: str,
    provider: str,
    ladder: bool,
) -> list[dict[str, Any]]:
    """Return what the head needs to know of each engine; `ladder`: restarts may change it."""
    return restarts.wanted(engines, hosts, host, provider, points() if ladder else None)


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "engines_on": views.engines_on,
            "engines_read_by": views.read_by,
            "engine_members": views.members,
            "engine_ray_dirs": views.ray_dirs,
            "engine_directories": views.directories,
            "engine_parser_arguments": views.parser_arguments,
            "engine_key_files": views.key_files,
            "engine_carry_over_files": views.carry_over_files,
            "engine_servers": servers.listed,
            "engines_to_load": loading.to_load,
            "loading_elsewhere": loading.elsewhere,
            "engine_starting_ports": views.starting_ports,
            "port_measurements": views.port_measurements,
            "computation_references": reference.references,
            "known_start": known_start,
            "closing_steps": verbs.closing_steps,
            "stop_steps": verbs.stop_steps,
            "status_rows": verbs.status_rows,
            "died_engines": verbs.died_engines,
            "watchdog_engines": watched.told,
            "watchdog_restarts": watchdog_restarts,
            "ladder_rows": ladder.rows,
            "ladder_helped": first_start.helped,
            "watchdog_restart_rows": restarts.rows,
            "watchdog_restart_measurements": restarts.measurements,
            "watchdog_supervisor_dir": supervisor_dir,
            "watchdog_rows": watched.rows,
            "watchdog_measurements": watched.measurements,
        }
