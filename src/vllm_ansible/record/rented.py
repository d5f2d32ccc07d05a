"""What a person is told of rented machines at the end of a run: the way in, or the ways out."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vllm_ansible.provision.giver import giver
from vllm_ansible.provision.ledger import FILE, Ledger
from vllm_ansible.slurm.endpoint import login

from .. import terminal as console

# Later ones fail for what runs on a machine.
JUDGING = ("prepare", "verify")
STATE = Path(__file__).resolve().parents[3] / "state"


def named(stage: str, texts: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the hosts that a failure of a stage is about, out of its own words on where it is.

    Of stages that judge machines which were accepted before; none where it is about all of them.
    """
    if stage not in JUDGING:
        return []
    words = {word for text in texts for word in re.split(r"[\s,:()]+", text or "")}
    found = [host for host in known if host in words]
    return found if len(found) < len(known) else []


def ways_out(
    cluster: str | None,
    inventories: Sequence[str],
    *,
    failed: bool,
    named: Sequence[str] = (),
    state: Path = STATE,
) -> list[str]:
    """Return what a cluster's machines cost and how to end them, or to go on after a failure.

    `named` are hosts that failures were about, whose machines may be given back alone. Nothing
    where no machine is paid for.
    """
    machines, price, cents = _counted(cluster, state)
    if not machines:
        return []
    given = "".join(
        f" -i {os.path.relpath(one) if os.path.exists(one) else one}" for one in inventories
    )
    rented = f"{machines} rented machine{'s' if machines > 1 else ''}"
    hosts = ",".join(dict.fromkeys(named))
    replace = f"ansible-playbook playbooks/replace.yml{given} -e replace_hosts={hosts}"
    cost = f"${price / 100:.2f}/h for {rented}, ${cents / 100:.2f} so far"
    return [
        *console.stage_line("costs", cost),
        *(console.stage_line("continue", "the same command again") if failed else ()),
        *(console.stage_line("or replace", f"{replace}; continue") if failed and named else ()),
        *console.stage_line(
            "or end" if failed else "end", f"ansible-playbook playbooks/teardown.yml{given}"
        ),
    ]


def so_far(cluster: str | None, following: str, state: Path = STATE) -> list[str]:
    """Return what rented machines have cost at the end of a stage, and which stage comes next.

    Nothing where no machine is paid for.
    """
    machines, price, cents = _counted(cluster, state)
    if not machines:
        return []
    return [f"${cents / 100:.2f} so far at ${price / 100:.2f}/h; next: {following}"]


def _counted(cluster: str | None, state: Path) -> tuple[int, float, float]:
    """Return how many machines are paid for, US cents an hour, and US cents so far."""
    try:
        (file,) = (state / (cluster or "-")).glob(f"*{FILE}")
        ledger = Ledger(file)
        machines = sum(one.until is None for one in ledger.entries().values())
        return machines, ledger.cents_per_hour(), ledger.cents(time.time())
    except (OSError, ValueError, TypeError):
        # What the stage itself has to say matters more.
        return 0, 0, 0


@dataclass(frozen=True)
class Door:
    """What a forwarded port leads to: an address that `host` alone reaches, or every host."""

    words: str
    address: str
    port: int
    host: str | None = None


def doors(values: Mapping[str, Any]) -> list[Door]:
    """Return what the engines in a gate's figures, and the page before them, let somebody in at."""
    engines = values.get("engines")
    found = []
    if page := values.get("page"):
        parts = urlsplit(str(page))
        port = parts.port or 443
        words = f"the load-test page at https://localhost:{port}/"
        found.append(Door(words, str(parts.hostname), port))
    for one in engines if isinstance(engines, list) else []:
        if not isinstance(one, Mapping) or "endpoint" not in one:
            continue
        # Behind a router nobody asks a rank.
        for rank in [one] if one.get("router") else one.get("ranks") or [one]:
            parts = urlsplit(str(rank["endpoint"]))
            port = parts.port or 80
            found.append(Door(f"http://127.0.0.1:{port}/v1", str(parts.hostname), port))
        if board := one.get("dashboard"):
            words = f"Ray's dashboard of {one['name']} at http://127.0.0.1:{board['port']}"
            found.append(Door(words, "127.0.0.1", int(board["port"]), str(board["host"])))
    return found


def tunnel(variables: Mapping[str, Any], doors: Sequence[Door]) -> list[str]:
    """Return the command that brings what rented machines offer to where one sits.

    `variables` are those of the first host. Endpoints are on the data plane, which nobody outside
    can reach; a dashboard is on its own host alone. Nothing for machines that are not rented.
    """
    given = giver(variables.get("provision_provider"))
    here = variables.get("inventory_hostname")
    # By way of a login node no host's own loopback is reached.
    inside = None if given.by_login_node else here
    reached = [one for one in doors if one.host in (None, inside)]
    if not given.name or not reached:
        return []
    words = ["ssh", "-N"]
    if not given.by_login_node:
        words += shlex.split(_plain(variables, "ansible_ssh_common_args"))
        if key := _plain(variables, "ansible_ssh_private_key_file"):
            words += ["-i", key]
        if port := variables.get("ansible_port"):
            words += ["-p", str(port)]
    for one in reached:
        words += ["-L", f"{one.port}:{one.address}:{one.port}"]
    user, host = _plain(variables, "ansible_user"), _plain(variables, "ansible_host")
    words.append(login() if given.by_login_node else f"{user}@{host}")
    offered = ", ".join(one.words for one in reached)
    lines = [
        *console.stage_line("reach", f"{offered} on your own machine, while this runs there:"),
        *console.stage_line("", shlex.join(words)),
    ]
    if any(one.host for one in reached):
        token = f"state/{_plain(variables, 'cluster_name')}/ray_token"
        lines += console.stage_line("", f"the dashboard asks for the token in {token}")
    return lines


def _plain(variables: Mapping[str, Any], name: str) -> str:
    """Return a variable that is no template."""
    text = str(variables.get(name) or "")
    return "" if "{{" in text else text
