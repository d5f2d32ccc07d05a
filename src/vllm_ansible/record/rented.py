"""What a person is told of rented machines at the end of a run: the way in, or the ways out."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vllm_ansible.provision.ledger import FILE, Ledger

from . import console

STATE = Path(__file__).resolve().parents[3] / "state"


def ways_out(cluster: str | None, inventories: Sequence[str], state: Path = STATE) -> list[str]:
    """Return what a cluster's machines cost and how to go on or end them; nothing without any."""
    try:
        ledger = Ledger(state / (cluster or "-") / FILE)
        machines = sum(one.until is None for one in ledger.entries().values())
        price, cents = ledger.cents_per_hour(), ledger.cents(time.time())
    except (OSError, ValueError, TypeError):
        # The failure itself is what has to be told.
        return []
    if not machines:
        return []
    given = "".join(
        f" -i {os.path.relpath(one) if os.path.exists(one) else one}" for one in inventories
    )
    rented = f"{machines} rented machine{'s' if machines > 1 else ''}"
    cost = f"${price / 100:.2f}/h for {rented}, ${cents / 100:.2f} so far"
    return [
        *console.stage_line("costs", cost),
        *console.stage_line("go on", "the same command again"),
        *console.stage_line("or end", f"ansible-playbook playbooks/teardown.yml{given}"),
    ]


def endpoints(values: Mapping[str, Any]) -> list[str]:
    """Return the URLs of the engines in a gate's figures."""
    engines = values.get("engines")
    found = engines if isinstance(engines, list) else []
    return [str(one["endpoint"]) for one in found if isinstance(one, Mapping) and "endpoint" in one]


def tunnel(variables: Mapping[str, Any], endpoints: Sequence[str]) -> list[str]:
    """Return the command that brings endpoints on rented machines to where one sits.

    `variables` are those of the first host; endpoints are URLs on the data plane, which nobody
    outside can reach. Nothing for machines that are not rented.
    """
    if not variables.get("provision_provider") or not endpoints:
        return []
    words = ["ssh", "-N", *shlex.split(_plain(variables, "ansible_ssh_common_args"))]
    if key := _plain(variables, "ansible_ssh_private_key_file"):
        words += ["-i", key]
    for endpoint in endpoints:
        parts = urlsplit(endpoint)
        words += ["-L", f"{parts.port}:{parts.hostname}:{parts.port}"]
    words.append(f"{_plain(variables, 'ansible_user')}@{_plain(variables, 'ansible_host')}")
    ports = ", ".join(f"http://127.0.0.1:{urlsplit(one).port}/v1" for one in endpoints)
    return [
        *console.stage_line("reach", f"{ports} on your own machine, while this runs there:"),
        *console.stage_line("", shlex.join(words)),
    ]


def _plain(variables: Mapping[str, Any], name: str) -> str:
    """Return a variable that is no template."""
    text = str(variables.get(name) or "")
    return "" if "{{" in text else text
