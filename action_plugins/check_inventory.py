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

from vllm_ansible.bundle import check as bundle
from vllm_ansible.inventory.accepted import accepts
from vllm_ansible.inventory.check import Inventory, check
from vllm_ansible.inventory.cluster import LOAD
from vllm_ansible.inventory.play_variables import gpu_hosts, hosts_of_this_run, plain
from vllm_ansible.inventory.readable import readable
from vllm_ansible.inventory.sources import read_sources
from vllm_ansible.inventory.specs import Option, load_options
from vllm_ansible.inventory.state_owner import other_owner
from vllm_ansible.inventory.typed import is_typed, typed
from vllm_ansible.inventory.variables import Unresolved, unknown_variables, wrong_types
from vllm_ansible.plan.idle import total
from vllm_ansible.problem import Problem, as_result
from vllm_ansible.provision.fleet import NOWHERE

REPOSITORY = Path(__file__).resolve().parents[1]
COMMAND_LINE = "command_line"
GIVEN = "-e on the command line"
ARGUMENTS = {
    "only": {"type": "str", "choices": ["everything", COMMAND_LINE], "default": "everything"}
}


class ActionModule(ActionBase):
    """Look at every host's variables on the controller; no host is touched."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or every problem there is."""
        super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(argument_spec=ARGUMENTS)
        task_variables = task_vars or {}
        options = load_options(REPOSITORY / "roles")
        if asked["only"] == COMMAND_LINE:
            problems = self._given(options)
            return {"failed": True, **as_result(problems)} if problems else {"changed": False}
        problems = self._bundle(task_variables)
        if problems:
            # Before the models are looked at: those of the hub would be asked for there.
            return {"failed": True, **as_result(problems)}
        inventory = Inventory(
            hosts=_values(task_variables["hostvars"], options),
            groups=plain(task_variables["groups"]),
            gpu=gpu_hosts(task_variables),
            selected=hosts_of_this_run(task_variables),
            connection=_connection_variables(),
            addresses=_addresses(task_variables),
        )
        verdict = check(inventory, options, accepts, self._finder(task_variables), readable)
        problems = [*verdict.problems, *_as_text(inventory.hosts, options)]
        if verdict.cluster and not problems:
            hostvars = {host: task_variables["hostvars"][host] for host in inventory.gpu}
            problems = other_owner(REPOSITORY / "state" / verdict.cluster, hostvars)
        if problems:
            return {"failed": True, **as_result(problems)}
        engines = [engine.name for engine in verdict.engines]
        values: dict[str, Any] = {
            "cluster": verdict.cluster,
            "engines": engines,
            "hosts": list(verdict.hosts),
            "unchecked": dict(verdict.unchecked),
        }
        unasked = {str(one.get("provision_unasked") or "") for one in inventory.hosts.values()}
        told = [f"{name} was not asked which machines there are" for name in sorted(unasked - {""})]
        summary = "; ".join([verdict.summary(), *told])
        return {
            "changed": False,
            "warnings": list(verdict.warnings),
            "unchecked": dict(verdict.unchecked),
            "idle": dict(zip(("idle", "of"), total(verdict.idle), strict=True)),
            "evidence": {"gate": "validate", "summary": summary, "values": values},
        }

    def _bundle(self, task_vars: Mapping[str, Any]) -> list[Problem]:
        """Return what is wrong with the bundle that the first host names."""
        for host in gpu_hosts(task_vars)[:1]:
            variables = task_vars["hostvars"][host]
            names = [bundle.NAME, *bundle.READ]
            values = {name: _value(variables, name) for name in names if name in variables}
            if isinstance(wanted := values.get(bundle.NAME), str) and wanted:
                return bundle.problems(wanted, REPOSITORY, values)
        return []

    def _given(self, options: Mapping[str, Option]) -> list[Problem]:
        """Return what is wrong with the variables of the command line."""
        extra = load_extra_vars(self._loader)
        values = {name: self._evaluated(extra[name]) for name in extra if name in options}
        given = {"the command line": {**dict.fromkeys(extra), **values}}

        def where(name: str, hosts: Sequence[str]) -> str:
            del name, hosts
            return GIVEN

        problems = unknown_variables(given, options, _connection_variables(), where)
        problems += wrong_types({"": values}, options, accepts, where)
        return [*problems, *_as_text({"": values}, options)]

    def _evaluated(self, value: Any) -> Any:
        """Return a value of the command line, with its templates evaluated."""
        try:
            return plain(self._templar.template(value))
        except AnsibleError as error:
            return Unresolved(str(error).splitlines()[0])

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
                return GIVEN
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


def _addresses(task_vars: Mapping[str, Any]) -> dict[str, str]:
    """Return where SSH reaches each host; a host of a provider may have no address yet."""
    found = {}
    # One that is in both is refused by itself.
    for host in dict.fromkeys([*gpu_hosts(task_vars), *task_vars["groups"].get(LOAD, ())]):
        variables = task_vars["hostvars"][host]
        if variables.get("ansible_connection") == "local":
            continue
        address = str(_value(variables, "ansible_host") if "ansible_host" in variables else host)
        if address != NOWHERE:
            port = variables.get("ansible_port") or ""
            found[host] = f"{address}:{port}" if port else address
    return found


def _as_text(
    hosts: Mapping[str, Mapping[str, Any]], options: Mapping[str, Option]
) -> list[Problem]:
    """Refuse texts that no callback has typed: what is not empty counts as true."""
    names = {
        name
        for values in hosts.values()
        for name in values.keys() & options.keys()
        if not is_typed(options[name], values[name])
        and is_typed(options[name], typed(options[name], values[name]))
    }
    if not names:
        return []
    return [
        Problem(
            "this run does not use the settings of this project, so that "
            f"{', '.join(sorted(names))} would be read as text",
            expected=f"{REPOSITORY}/ansible.cfg, with its callback plugins",
            found=str(constants.CONFIG_FILE or "no ansible.cfg"),
            where="ANSIBLE_CONFIG",
            fix=f"export ANSIBLE_CONFIG={REPOSITORY}/ansible.cfg, and leave out or extend "
            "ANSIBLE_CALLBACK_PLUGINS",
        )
    ]


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
