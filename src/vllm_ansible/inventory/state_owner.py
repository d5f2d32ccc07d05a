"""Whose state a cluster's directory on the controller is: two inventories may choose one name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_ansible.inventory.play_variables import gpu_hosts
from vllm_ansible.problem import Problem
from vllm_ansible.provision.giver import giver

FILE = "inventory.json"


def description(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what an inventory is known by: who gives its hosts, their names and addresses."""
    provider = next((str(one.get("provision_provider") or "") for one in hosts.values()), "")
    names = {*hosts, *(str(one.get("ansible_host") or "") for one in hosts.values())} - {""}
    return {"provider": provider, "hosts": [] if provider else sorted(names)}


def other_owner(directory: Path, hosts: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Refuse a state directory that holds keys and records of another inventory's cluster."""
    own, kept = description(hosts), _kept(directory)
    if kept is None or not hosts:
        return []
    same_giver = kept["provider"] == own["provider"]
    if same_giver and (own["provider"] or {*kept["hosts"]} & {*own["hosts"]}):
        return []
    found = giver(kept["provider"]).gives
    found += f": {_some(kept['hosts'])}" if kept["hosts"] else ""
    expected = giver(own["provider"]).gives
    expected += f": {_some(own['hosts'])}" if own["hosts"] else ""
    return [
        Problem(
            f"the state of cluster {directory.name} belongs to another inventory",
            expected=expected,
            found=found,
            where=str(directory),
            fix="choose another cluster_name; or, where this inventory takes the place of that "
            f"one, remove {directory}, once nothing of that cluster runs",
        )
    ]


def claim_for_run(directory: Path, task_vars: Mapping[str, Any]) -> None:
    """Note that a directory is of the inventory that this run is about."""
    hosts = {host: task_vars["hostvars"][host] for host in gpu_hosts(task_vars)}
    if hosts:
        claim(directory, hosts)


def claim(directory: Path, hosts: Mapping[str, Mapping[str, Any]]) -> None:
    """Note whose the directory is, readable by its owner alone."""
    own = description(hosts)
    if own == _kept(directory):
        return
    file = directory / FILE
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(own))
    new.chmod(0o600)
    new.replace(file)


def _kept(directory: Path) -> dict[str, Any] | None:
    """Return whose a directory is; nothing where nobody has noted it."""
    try:
        kept = json.loads((directory / FILE).read_text(encoding="utf-8"))
        return {"provider": str(kept["provider"]), "hosts": [str(one) for one in kept["hosts"]]}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
