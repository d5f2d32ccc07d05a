"""Fill an inventory with the machines that a provider rents out: what all such plugins do."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.template import trust_as_template

from vllm_ansible.inventory.provider import (
    REPOSITORY,
    refuse,
    refuse_told,
    touches_machines,
    variables,
    warn,
)
from vllm_ansible.problem import PlanError
from vllm_ansible.provision.host_keys import HostKeys
from vllm_ansible.provision.noticed import ends
from vllm_ansible.provision.provider import provider
from vllm_ansible.provision.slots import hosts, shared
from vllm_ansible.provision.watcher import revive, unwatched

# Of what the cluster's hosts have in common, what machines beside it have too.
SHARED = ("ansible_user", "ansible_ssh_common_args", "supervisor")


def fill(
    plugin: Any, name: str, loader: Any, path: str, state: Path = REPOSITORY / "state"
) -> None:
    """Make one host for each slot of the cluster that an inventory of a provider describes."""
    cloud = provider(name)
    place = Path(path).parent / "group_vars"
    try:
        said = variables(loader, plugin.templar, place, cloud.read)
        wanted = cloud.settings(said, f"{place}/all.yml")
        cluster = cloud.cluster(wanted, state)
        if asks := touches_machines():
            machines = cluster.machines(cached=True)
            mine = [one for one in machines if cluster.mine(one)]
            others = [one for one in machines if not cluster.mine(one)]
            # A full disk keeps nobody from seeing and ending what is rented.
            with suppress(OSError):
                HostKeys(cluster.known_hosts).follow({one.shown_by: one.door for one in machines})
            warn(
                "provision",
                "; ".join(ends(cloud.title, cloud.notices, wanted.cluster, mine, time.time())),
            )
            # Before the watcher of ours lives: then it would say nothing of the others.
            warn("limits", unwatched(cluster.meter, others, cloud.name))
            warn("limits", revive(cluster.meter, mine, said, wanted))
        else:
            wanted.ready()
            machines = []
    except PlanError as refused:
        refuse(refused.problems)
    except cloud.errors as error:
        refuse_told([cloud.refusal(error)])
    parts = cloud.parts(wanted)
    for group in ("gpu", "head", "worker", "spare", *parts):
        plugin.inventory.add_group(group)
    common = shared(cloud, wanted, machines, str(cluster.known_hosts))
    if not asks:
        common["provision_unasked"] = cloud.title
    for variable, value in common.items():
        # Not of all hosts: an inventory may name others, such as this one.
        for group in ("gpu", "spare"):
            plugin.inventory.set_variable(group, variable, _trusted(value))
    # None of the cluster: the provider's role judges and ends what serves.
    beside = {name: common[name] for name in SHARED if name in common}
    beside |= {"accelerator": "cpu", "provision_beside": cloud.name}
    for group in parts:
        for variable, value in beside.items():
            plugin.inventory.set_variable(group, variable, _trusted(value))
    for host in hosts(wanted, machines, cluster.launched_here, parts):
        for group in host.groups:
            plugin.inventory.add_host(host.name, group=group)
        for variable, value in host.variables.items():
            known = variable == "ansible_host"
            value = _trusted(value) if known else value
            plugin.inventory.set_variable(host.name, variable, value)


def _trusted(value: Any) -> Any:
    """Return a text of our own, or an address, as one of an inventory file.

    What a provider says may never be evaluated, and `ansible-inventory` marks it as such for its
    readers, of whom not all understand the mark.
    """
    return trust_as_template(value) if isinstance(value, str) else value
