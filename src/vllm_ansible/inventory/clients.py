"""What clients of the door are promised that neither engines nor settings keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_ansible.door.clients import Client, ClientsFault, parse
from vllm_ansible.inventory.variables import Where
from vllm_ansible.plan.adapters import adapter_problems, adapters_asked
from vllm_ansible.plan.dynamo import DYNAMO
from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.model_arguments import given_arguments
from vllm_ansible.problem import Problem

FILE = "door_clients_file"
# Of the month, before a day of it.
MONTH_DAYS = 31


def unkept(variables: Mapping[str, Any], engines: Sequence[Engine], where: Where) -> list[Problem]:
    """Return the priorities that no engine heeds, counts of a month that are not kept so long, and
    adapters whose name has another meaning at the door.

    A file that cannot be used is refused elsewhere.
    """
    clients = _clients(variables.get(FILE))
    return [
        *(adapter_problems(engines) if variables.get(FILE) else ()),
        *_priorities(clients, engines, lambda name: where(name, [])),
        *_months(clients, variables.get("door_keep_days"), lambda name: where(name, [])),
    ]


def _clients(named: object) -> dict[str, Client]:
    if not named or not isinstance(named, str):
        return {}
    try:
        return parse(Path(named).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ClientsFault):
        return {}


def _priorities(
    clients: Mapping[str, Client], engines: Sequence[Engine], where: Callable[[str], str]
) -> list[Problem]:
    """Return the clients with a priority for whom an engine serves in the order of arrival."""
    found = []
    for name, client in clients.items():
        allowed = set(client.models or ())
        asked = [one for one in engines if not allowed or allowed & _names(one)]
        deaf = [
            one.name or one.served_name
            for one in asked
            if one.front == DYNAMO or given_arguments(one).get("scheduling_policy") != "priority"
        ]
        if client.priority and deaf:
            found.append(
                Problem(
                    f"client {name} has priority {client.priority}, and {', '.join(deaf)}"
                    " serves requests in the order of arrival",
                    expected="scheduling_policy: priority in vllm_args of each engine that it may"
                    f" use, and no front: {DYNAMO}, which refuses requests with a priority",
                    found="another policy, or that front",
                    where=where("engines"),
                    fix="add it, limit the client to other models, or leave out its priority",
                )
            )
    return found


def _names(engine: Engine) -> set[str]:
    """Return by which names clients ask an engine."""
    return {engine.served_name, *adapters_asked(engine.vllm_args)}


def _months(
    clients: Mapping[str, Client], kept: object, where: Callable[[str], str]
) -> list[Problem]:
    limited = [name for name, client in clients.items() if client.tokens_per_month]
    if not limited or not isinstance(kept, int) or kept >= MONTH_DAYS:
        return []
    return [
        Problem(
            f"door_keep_days is {kept}, and {', '.join(limited)} may use so many tokens a month",
            expected=f"{MONTH_DAYS} days or more",
            found=f"{kept}",
            where=where("door_keep_days"),
            fix=f"set door_keep_days to {MONTH_DAYS} or more, or leave out tokens_per_month",
        )
    ]
