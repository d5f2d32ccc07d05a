"""Jinja filters over what hosts have to reach of each other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.problem import PlanError
from vllm_ansible.verify.reach.purposes import by_engine, of_cluster


def reach_ports(engines: Any, port_base: int, kept: Mapping[str, Any]) -> list[list[int]]:
    """Return the ports that each engine will listen on, and the cluster's own."""
    try:
        engines_ports = by_engine(plain(engines), int(port_base), plain(kept))
    except PlanError as error:
        raise AnsibleFilterError(f"reach_ports: {error}") from error
    return [list(ports) for ports in (*engines_ports, of_cluster(int(port_base)))]


def for_rounds(seconds: Any, hosts: Sequence[str], forks: Any) -> float:
    """Return how long a wait over all hosts takes where Ansible works on so many at a time.

    Beyond its forks, a task begins on a host only when it has ended on another one.
    """
    return float(seconds) * max(ceil(len(hosts) / int(forks)), 1)


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"for_rounds": for_rounds, "reach_ports": reach_ports}
