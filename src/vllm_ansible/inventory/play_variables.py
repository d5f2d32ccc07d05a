"""Read what action plugins need of all hosts out of Ansible's variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_ansible.gate import unknown
from vllm_ansible.problem import PlanError

GROUP = "gpu"


def gpu_hosts(task_vars: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hosts of the group gpu in inventory order."""
    return tuple(str(host) for host in task_vars["groups"].get(GROUP, ()))


def hosts_of_this_run(task_vars: Mapping[str, Any]) -> tuple[str, ...]:
    """Return those hosts of the group gpu that --limit leaves in."""
    if not task_vars.get("ansible_limit"):
        return gpu_hosts(task_vars)
    played = set(task_vars.get("ansible_play_hosts_all", ()))
    return tuple(host for host in gpu_hosts(task_vars) if host in played)


def hosts_that_answer(task_vars: Mapping[str, Any]) -> tuple[str, ...]:
    """Return those hosts of this run that no task before has lost."""
    left = set(task_vars.get("ansible_play_hosts", ()))
    return tuple(host for host in hosts_of_this_run(task_vars) if host in left)


def of_each_host(
    task_vars: Mapping[str, Any], hosts: Sequence[str], wanted: str | Mapping[str, Any] | list[Any]
) -> dict[str, Any]:
    """Return a value for every host.

    wanted is a mapping by host, a list of mappings that have a name, or the name of a variable
    that every host has.
    """
    if isinstance(wanted, list):
        wanted = {str(value["name"]): value for value in wanted}
    if isinstance(wanted, Mapping):
        return {host: plain(wanted[host]) for host in hosts if host in wanted}
    hostvars = task_vars["hostvars"]
    missing = [host for host in hosts if wanted not in hostvars[host]]
    if missing:
        raise PlanError(unknown(missing, wanted))
    return {host: plain(hostvars[host][wanted]) for host in hosts}


def plain(value: Any) -> Any:
    """Return a value free of Ansible's own types, as JSON would hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def seen_processes(hosts: Iterable[Mapping[str, Any]]) -> set[str] | None:
    """Return the names of all processes that stages of this run have seen recorded.

    hosts: the variables of every host. None where a host was not looked at, as in a stage that
    runs alone; a machine that is still to be rented has nothing to be seen.
    """
    looks = [
        variables.get("__vllm_processes", {}).get("processes", variables.get("plan_processes"))
        for variables in hosts
        if not variables.get("provision_provider") or variables.get("provision_machine")
    ]
    if any(look is None for look in looks):
        return None
    return {str(name) for look in looks for name in look}
