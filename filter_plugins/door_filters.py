"""Jinja filters of the door."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.door import clients, haproxy, served
from vllm_ansible.inventory.play_variables import plain, seen_processes
from vllm_ansible.problem import PlanError


def door_models(plan: Any, hosts: Any, processes: Any) -> list[dict[str, Any]]:
    """Return each model with its servers, as the door's templates loop over them."""
    try:
        return served.models(plain(plan)["engines"], plain(hosts), plain(processes))
    except PlanError as error:
        raise AnsibleFilterError(f"door_models: {error}") from error


def door_clients(text: str) -> dict[str, Any]:
    """Return the names in a file of clients, and the lines that HAProxy reads."""
    try:
        found = clients.parse(text)
    except clients.ClientsFault as fault:
        raise AnsibleFilterError(f"door_clients: the file of clients {fault}") from fault
    return {"names": list(found), "lines": clients.map_lines(found)}


def door_unasked(hosts: Any) -> bool:
    """Tell whether no host asks for a door, and a stage of this run has seen that none has one.

    hosts: the variables of every host.
    """
    seen = seen_processes(hosts)
    asked = any(variables.get("door_clients_file") for variables in hosts)
    return not asked and seen is not None and "door" not in seen


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "door_by_conversation": haproxy.by_conversation,
            "door_clients": door_clients,
            "door_measurements": served.measurements,
            "door_models": door_models,
            "door_peer_measurements": served.peer_measurements,
            "door_peers": lambda *values: served.peers(*map(plain, values)),
            "door_models_text": served.models_text,
            "door_port_measurements": served.port_measurements,
            "door_setting_measurements": served.setting_measurements,
            "door_subjects": lambda *values: served.subjects(*map(plain, values)),
            "door_summary": served.summary,
            "door_threads": haproxy.threads,
            "door_unasked": door_unasked,
        }
