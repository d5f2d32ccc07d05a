"""Jinja filters of the stage observe."""

from __future__ import annotations

import base64
import hashlib
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.inventory.play_variables import plain, seen_processes
from vllm_ansible.observe import facts, seen
from vllm_ansible.observe.targets import targets


def observe_key(api_key: str) -> str:
    """Return the key with which figures are read, made of the engines' key.

    Who knows it cannot compute the engines' key, and a fresh clone makes the same one. Without the
    engines' key there is none: one made of nothing would be known to all who read this.
    """
    if not api_key.strip():
        return ""
    return hashlib.sha256(f"observe {api_key.strip()}".encode()).hexdigest()


def observe_targets(
    plan: Any, cluster: str, hosts: Any, processes: Any, port: int, doors: Any
) -> Any:
    """Return the targets of each job."""
    engines, places = plain(plan)["engines"], plain(doors)
    return targets(cluster, engines, plain(hosts), plain(processes), port, places)


def observe_engine_facts(plan: Any, first: float, inter: float) -> Any:
    """Return the limits of all engines."""
    return facts.of_engines(plain(plan)["engines"], float(first), float(inter))


def observe_unlimited(plan: Any, first: float, inter: float) -> str:
    """Return in words which engines have no limit."""
    return facts.unlimited(plain(plan)["engines"], float(first), float(inter))


def observe_host_facts(plan: Any, host: Any, machine: Any) -> Any:
    """Return what is known of one host."""
    return facts.of_host(plain(plan)["engines"], plain(host), plain(machine))


def observe_spend_facts(state: str, limit: float) -> Any:
    """Return what the cluster's machines cost."""
    return facts.of_spend(Path(state), float(limit))


def observe_page_plan(plan: Any, cluster: str, hosts: Any) -> Any:
    """Return what the page shows of the plan."""
    return facts.of_page(plain(plan)["engines"], cluster, plain(hosts))


def observe_sha(key: str) -> str:
    """Return the hash of a key after {SHA} in a file of passwords."""
    return base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()  # noqa: S324 - its form


def observe_health_file(processes: Any) -> str:
    """Return where the process that publishes the health of devices writes, if one is recorded."""
    words = shlex.split(str(plain(processes).get("device-health", {}).get("command", "")))
    return words[-1] if words else ""


def observe_served_at(processes: Any, name: str, hosts: Any, port: Any) -> dict[str, str]:
    """Return address and port of a process by this name, of each host where one is recorded."""
    recorded = plain(processes)
    return {
        host["name"]: f"{host['address']}:{port}"
        for host in plain(hosts)
        if name in recorded.get(host["name"], {})
    }


def observe_removal(names: Any) -> list[dict[str, str]]:
    """Return the steps that stop and remove these processes."""
    return [{"name": name, "engine": "", "state": "absent"} for name in names]


def observe_unasked(hosts: Any) -> bool:
    """Tell whether no host asks to be observed, and a stage of this run has seen that none is.

    hosts: the variables of every host.
    """
    seen = seen_processes(hosts)
    asked = any(variables.get("observe_mode") in ("run", "files") for variables in hosts)
    return not asked and seen is not None and not any(one.startswith("observe-") for one in seen)


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "observe_doors": seen.doors,
            "observe_engine_facts": observe_engine_facts,
            "observe_firing": seen.firing,
            "observe_health_file": observe_health_file,
            "observe_host_facts": observe_host_facts,
            "observe_key": observe_key,
            "observe_page_plan": observe_page_plan,
            "observe_port_measurements": seen.port_measurements,
            "observe_removal": observe_removal,
            "observe_scraped": seen.scraped,
            "observe_served_at": observe_served_at,
            "observe_setting_measurements": seen.settings,
            "observe_sha": observe_sha,
            "observe_spend_facts": observe_spend_facts,
            "observe_targets": observe_targets,
            "observe_unasked": observe_unasked,
            "observe_unlimited": observe_unlimited,
            "observe_unscraped": seen.unscraped,
        }
