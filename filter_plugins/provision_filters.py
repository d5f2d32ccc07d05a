"""Filters of the stage provision."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.provision import noticed
from vllm_ansible.slurm.endpoint import login, published


def machines_lacking(hostvars: Mapping[str, Any], hosts: Iterable[str]) -> list[str]:
    """Return the hosts that have no machine yet."""
    return [host for host in hosts if not hostvars[host].get("provision_machine")]


def machines_unfit(hostvars: Mapping[str, Any], hosts: Iterable[str]) -> dict[str, str]:
    """Return the reason by id of each machine that was looked at and is not fit.

    A machine that is gone, and whose host has another one or none by now, is not among them.
    """
    looked = [(hostvars[host].get("__provision_verdict"), hostvars[host]) for host in hosts]
    return {
        str(verdict["id"]): str(verdict["reason"])
        for verdict, host in looked
        if verdict
        and not verdict["accepted"]
        and verdict["id"] == host.get("provision_machine", {}).get("id")
    }


def machine_verdict(verdict: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the machine of a host was `accepted`, and in words what was found of it.

    A verdict counts for the machine that it was given on, not for another one of the same slot.
    """
    if not machine:
        return {"accepted": False, "told": "not rented"}
    if not verdict or verdict["id"] != machine["id"]:
        return {"accepted": False, "told": "nothing was measured"}
    return {"accepted": verdict["accepted"], "told": verdict["reason"] or verdict["told"]}


def published_endpoints(
    engines: Iterable[Mapping[str, Any]],
    hostvars: Mapping[str, Any],
    key_file: str,
    job: str,
    machine: Mapping[str, Any],
) -> dict[str, Any]:
    """Return where the engines of a plan answer, for whoever may use them."""
    planned = list(engines)
    serving = {host for engine in planned for host in engine["hosts"]}
    addresses = {host: str(hostvars[host]["site_host"]["address"]) for host in serving}
    ends_at, drains_at = (int(machine.get(name) or 0) for name in ("ends_at", "drains_at"))
    routers = {
        name: str(url)
        for host in serving
        for name, url in (hostvars[host].get("router_served") or {}).items()
    }
    return published(planned, addresses, key_file, job, ends_at, login(), drains_at, routers)


class FilterModule:
    """What Ansible reads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "machines_lacking": machines_lacking,
            "machines_unfit": machines_unfit,
            "machine_verdict": machine_verdict,
            "published_endpoints": published_endpoints,
            "notice_rows": noticed.rows,
            "notice_measurements": noticed.measurements,
        }
