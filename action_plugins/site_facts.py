"""Resolve the facts of all hosts; see library/site_facts.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from vllm_ansible.accelerators.platform import platforms
from vllm_ansible.inventory.look import HostLook
from vllm_ansible.inventory.play_variables import hosts_that_answer, of_each_host, plain
from vllm_ansible.inventory.site_host import Wishes, resolve_hosts
from vllm_ansible.inventory.specs import load_options
from vllm_ansible.plan.fabric import fabric_environment
from vllm_ansible.problem import PlanError, as_result

ROLES = Path(__file__).resolve().parents[1] / "roles"


class ActionModule(ActionBase):
    """Decide on the controller, once, from every host's look."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return site_host of every host by name."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        # Where one lost host does not end the play, as in status, the others are still described.
        hosts = hosts_that_answer(variables)
        try:
            found = of_each_host(variables, hosts, self._task.args["looks"])
            found |= plain(self._task.args.get("besides", {}))
            raw = {host: found[host].get("host", found[host]) for host in found}
            looks = [HostLook.read(host, raw[host]) for host in raw]
            local = all(
                variables["hostvars"][host].get("ansible_connection") == "local" for host in raw
            )
            defaults = {name: option.default for name, option in load_options(ROLES).items()}
            wishes = {host: _wishes(variables["hostvars"][host], defaults) for host in raw}
            follows = boolean(self._task.args.get("driver_follows", False))
            judged = boolean(self._task.args.get("accelerators_judged", True))
            resolved = resolve_hosts(looks, wishes, local, follows, judged)
        except PlanError as error:
            return {"failed": True, **as_result(error.problems)}
        # Other roles also read what was looked at and needs no decision, such as missing libraries.
        return {
            "changed": False,
            "hosts": {
                host: _with_fabric({**_flat(raw[host]), **facts}, wishes[host], variables)
                for host, facts in resolved.items()
            },
        }


def _flat(look: dict[str, Any]) -> dict[str, Any]:
    """Return a look with its driver beside the rest."""
    return {**look, "driver_version": look["accelerators"].get("driver_version", "")}


def _with_fabric(
    host: dict[str, Any], wish: Wishes, variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the facts of a host with the environment of its fabric, where it has one."""
    # Not the hosts of this run: --limit must not change what an engine is started with.
    hosts = len((variables.get("groups") or {}).get("gpu", ()))
    found = fabric_environment(host, wish.system_efa, hosts)
    return {**host, "fabric_environment": found} if found else host


def _wishes(own: Mapping[str, Any], defaults: Mapping[str, Any]) -> Wishes:
    """Return what the inventory says about a host; role defaults stand in for what it omits.

    Not the variables of the task: they hold what the inventory says of the host it is played for.
    """
    said: dict[str, Any] = {}
    for field in fields(Wishes):
        if field.name.startswith("driver_"):
            continue
        value = own.get(field.name, defaults.get(field.name))
        if value is not None:
            # -e gives texts where the inventory gives numbers.
            said[field.name] = int(value) if field.type == "int" else str(plain(value))
    drivers = {one.driver_role for one in platforms().values() if one.driver_role}
    for field_name, suffix in (("driver_modes", "mode"), ("driver_mended", "mended")):
        values = {
            role: own.get(f"{role}_{suffix}", defaults.get(f"{role}_{suffix}")) for role in drivers
        }
        said[field_name] = {
            role: str(plain(value)) for role, value in values.items() if value is not None
        }
    return Wishes(**said)
