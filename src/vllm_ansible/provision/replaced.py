"""Which machines are given back by name, so that others take their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.problem import PlanError, Problem, close_match
from vllm_ansible.provision.giver import giver

REASON = "given back by name"
HERE = "replace_hosts"


def replaced(
    names: Sequence[str], machines: Mapping[str, Mapping[str, Any]], provider: str
) -> dict[str, str]:
    """Return the id of the machine of each named host; raise PlanError where one has none.

    machines: what the provider lists for every host of the inventory, nothing for one without.
    """
    if instead := giver(provider).replace:
        raise PlanError(
            Problem(
                "hosts that are not rented cannot be replaced from here",
                expected="machines that this inventory rents by the hour",
                found=f"hosts of {provider}" if provider else "hosts of an inventory of your own",
                where=HERE,
                fix=instead,
            )
        )
    known = {host: str(one["id"]) for host, one in machines.items() if one.get("id")}
    wanted = list(dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in known]:
        raise PlanError(_without_machine(unknown, known, machines))
    if not wanted:
        raise PlanError(
            Problem(
                "no host is named",
                expected="names of hosts whose machines are to be given back",
                found="none",
                where=HERE,
                fix=f"-e {HERE}=NAME[,NAME...]; rented are {', '.join(known) or 'none'}",
            )
        )
    if len(wanted) == len(known) > 1:
        raise PlanError(
            Problem(
                f"all {len(known)} machines would be given back",
                expected="one that stays; a fault of all of them is more likely elsewhere",
                found=", ".join(wanted),
                where=HERE,
                fix="run playbooks/teardown.yml, which gives all back, then site.yml",
            )
        )
    return {name: known[name] for name in wanted}


def _without_machine(
    unknown: Sequence[str], known: Mapping[str, str], machines: Mapping[str, Any]
) -> Problem:
    name = unknown[0]
    empty = name in machines
    return Problem(
        f"{name} has no machine yet" if empty else f"no host is called {name}",
        expected="names of hosts that have a machine",
        found=", ".join(unknown),
        where=HERE,
        fix="run site.yml, which rents one"
        if empty
        else close_match(name, known) or f"rented are {', '.join(known) or 'none'}",
    )
