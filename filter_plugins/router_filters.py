"""Jinja filters of the router."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.plan import dynamo, pairs, routers
from vllm_ansible.problem import PlanError


def routers_on(engines: Any, hosts: Any, name: str, engine_version: str) -> list[dict[str, Any]]:
    """Return what each router of a host is told."""
    try:
        return routers.on_host(plain(engines), plain(hosts), name, engine_version)
    except PlanError as error:
        raise AnsibleFilterError(f"routers_on: {error}") from error


def dynamos_on(engines: Any, hosts: Any, name: str) -> list[dict[str, Any]]:
    """Return each Dynamo that has a part on a host."""
    try:
        return routers.beside(plain(engines), plain(hosts), name)
    except PlanError as error:
        raise AnsibleFilterError(f"dynamos_on: {error}") from error


def proof(told: Any, looked: Any, answer: Any, where: str, log: str) -> list[dict[str, Any]]:
    """Return what must hold of a router: every rank proven, and an answer by way of it."""
    given, seen = plain(told), plain(looked)
    found = routers.measurements(seen, given["ranks"], where, log)
    answered = routers.answer_measurement(plain(answer), given, seen.get("ranks", []), log)
    return [*found, answered]


def dynamo_steps(told: Any, place: Any, processes: Any, user: Any, lock: str) -> dict[str, Any]:
    """Return the processes of one Dynamo, as engine_phase takes them."""
    return dynamo.steps(plain(told), plain(place), plain(processes), user, lock)


def pairs_steps(told: Any, place: Any, user: Any, depends: Any) -> list[dict[str, Any]]:
    """Return the front of a set of prefill and decode, as engine_phase takes it."""
    return pairs.steps(plain(told), plain(place), user, plain(depends))


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "dynamo_looked": dynamo.looked,
            "dynamo_measurements": dynamo.measurements,
            "dynamo_nats": dynamo.nats_configuration,
            "dynamo_removal": dynamo.removal,
            "dynamo_running": dynamo.running,
            "dynamo_starting_ports": dynamo.starting_ports,
            "dynamo_steps": dynamo_steps,
            "dynamo_state": dynamo.state_measurement,
            "dynamo_state_summary": dynamo.state_summary,
            "dynamo_strays": dynamo.strays,
            "dynamo_sidecars": dynamo.known_at,
            "dynamo_spread": dynamo.is_spread,
            "dynamo_summary": dynamo.summary,
            "dynamo_turns": dynamo.turns,
            "dynamos_on": dynamos_on,
            "pairs_measurements": pairs.measurements,
            "pairs_starting_ports": pairs.starting_ports,
            "pairs_steps": pairs_steps,
            "pairs_strays": pairs.strays,
            "pairs_summary": pairs.summary,
            "router_concern": routers.concern,
            "router_removal": routers.removal,
            "router_starting_ports": routers.starting_ports,
            "router_proof": proof,
            "router_settled": routers.settled,
            "router_state": routers.state_words,
            "router_strays": routers.strays,
            "routers_on": routers_on,
            "routers_recorded": routers.recorded,
        }
