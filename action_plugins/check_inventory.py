"""Refuse a bad inventory; see library/check_inventory.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader, shell_loader
from ansible.utils.vars import load_extra_vars

from vllm_ansible.inventory.accepted import accepts
from vllm_ansible.inventory.check import Inventory, check
from vllm_ansible.inventory.play_variables import gpu_hosts, hosts_of_this_run, plain
from vllm_ansible.inventory.readable import readable
from vllm_ansible.inventory.sources import read_sources
from vllm_ansible.inventory.specs import Option, load_options
from vllm_ansible.inventory.variables import Unresolved
from vllm_ansible.planner.problem import as_result

ROLES = Path(__file__).resolve().parents[1] / "roles"


class ActionModule(ActionBase):
    """Look at every host's variables on the controller; no host is touched."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or every problem there is."""
        super().run(tmp, task_vars)
        task_variables = task_vars or {}
        options = load_options(ROLES)
        inventory = Inventory(
            hosts=_values(task_variables["hostvars"], options),
            groups=plain(task_variables["groups"]),
            gpu=gpu_hosts(task_variables),
            selected=hosts_of_this_run(task_variables),
            connection=_connection_variables(),
        )
        verdict = check(inventory, options, accepts, self._finder(task_variables), readable)
        if verdict.problems:
            return {"failed": True, **as_result(verdict.problems)}
        engines = [engine.name for engine in verdict.engines]
        values = {"cluster": verdict.cluster, "engines": engines, "hosts": list(verdict.hosts)}
        evidence = {"gate": "validate", "summary": verdict.summary(), "values": values}
        return {"changed": False, "evidence": evidence}

    def _finder(self, variables: Mapping[str, Any]) -> Any:
        """Return the function that tells where a variable was set."""
        inventories = [Path(source) for source in variables.get("ansible_inventory_sources", ())]
        playbook = variables.get("playbook_dir")
        sources = read_sources(inventories, Path(playbook) if playbook else None)
        extra = load_extra_vars(self._loader)
        groups = {
            host: [name for name, members in variables["groups"].items() if host in members]
            for host in variables["hostvars"]
        }

        def where(name: str, hosts: Sequence[str]) -> str:
            if name in extra:
                return "-e on the command line"
            of_hosts = ["all", *(group for host in hosts for group in groups.get(host, ()))]
            places = sources.of(name, hosts, of_hosts)
            return ", ".join(dict.fromkeys(place.shown(Path.cwd()) for place in places))

        return where


def _values(hostvars: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the variables of every host; those nothing documents are known by name alone."""
    return {
        host: {
            name: _value(hostvars[host], name) if name in options else None
            for name in hostvars[host]
        }
        for host in hostvars
    }


def _value(variables: Mapping[str, Any], name: str) -> Any:
    """Return the value of a variable with its templates evaluated."""
    try:
        return plain(variables[name])
    except AnsibleError as error:
        return Unresolved(str(error).splitlines()[0])


def _connection_variables() -> list[str]:
    """Return the variables that connections, privilege escalation and Ansible itself read."""
    names = {*constants.INTERNAL_STATIC_VARS, "ansible_python_interpreter"}
    names.update(name for known in constants.MAGIC_VARIABLE_MAPPING.values() for name in known)
    plugins = (
        ("connection", connection_loader, ("ssh", "local")),
        ("become", become_loader, ("sudo", "su")),
        ("shell", shell_loader, ("sh",)),
    )
    for kind, loader, used in plugins:
        for plugin in used:
            # What a plugin reads is known once its class was found.
            loader.get(plugin, class_only=True)
            names.update(constants.config.get_plugin_vars(kind, plugin))
    return sorted(names)
