"""Plan the engines over the hosts; see library/plan_layout.py."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.accelerators.accelerator import Accelerator, accelerator
from vllm_ansible.accelerators.platform import has_devices, platform
from vllm_ansible.inventory.cluster import is_true
from vllm_ansible.inventory.play_variables import (
    gpu_hosts,
    hosts_of_this_run,
    of_each_host,
    plain,
)
from vllm_ansible.inventory.readable import Readings, readable
from vllm_ansible.plan.advice import Terms
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.idle import idle_devices, idle_warnings
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.ports import INTERNAL_BASE
from vllm_ansible.plan.sticky import plan_of_some_hosts
from vllm_ansible.problem import PlanError, as_result


class ActionModule(ActionBase):
    """Decide on the controller, once, from the facts of all hosts."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the plan, whether it differs from the kept one, and the evidence."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = plain(self._task.args)
        try:
            kept = Plan.from_dict(arguments["kept"]) if arguments.get("kept") else None
            plan = self._plan(arguments, variables, kept)
        except PlanError as error:
            return {"failed": True, **as_result(error.problems)}
        if is_true(arguments.get("early", False)):
            return {"changed": False, "warnings": list(plan.warnings)}
        written = plan.to_dict()
        run_dir = os.environ.get("VLLM_ANSIBLE_RUN_DIR")
        if run_dir:
            text = json.dumps(written, indent=2) + "\n"
            Path(run_dir, "plan.json").write_text(text, encoding="utf-8")
        differs = kept is None or kept.digest != plan.digest
        idle = plan.idle(hosts_of_this_run(variables))
        counts = idle_devices(plan, _devices(arguments, variables))
        return {
            # Keeping it is the change.
            "changed": False,
            "plan": written,
            "differs": differs,
            "warnings": [*plan.warnings, *_unchecked(plan), *idle_warnings(counts, idle)],
            "evidence": {
                "gate": "plan",
                "summary": plan.summary(),
                "values": {
                    **plan.evidence(),
                    "idle_hosts": idle,
                    "idle_devices": {host: free for host, (free, _) in counts.items() if free},
                },
            },
        }

    def _plan(
        self, arguments: dict[str, Any], variables: dict[str, Any], kept: Plan | None
    ) -> Plan:
        """Return the plan of all hosts, or the kept one where --limit leaves hosts out."""
        engines = parse_engines(arguments["engines"])
        hosts = hosts_of_this_run(variables)
        if set(hosts) != set(gpu_hosts(variables)):
            if is_true(arguments.get("early", False)):
                return Plan(str(arguments["cluster"]), ())
            return plan_of_some_hosts(engines, kept, hosts)
        site = of_each_host(variables, hosts, arguments["hosts"])
        own = arguments.get("accelerators") or {}
        for name in own:
            accelerator(name, own)
        capacities = [
            Capacity.whole(
                host,
                site[host]["accelerator"],
                int(site[host]["accelerator_count"]),
                _device(site[host], own),
                tuple(site[host].get("accelerator_indices") or ()),
            )
            for host in hosts
        ]
        for words in _surprises(capacities, variables["hostvars"], own):
            self._display.warning(words)
        known = any(capacity.device for capacity in capacities)
        found = (
            readable(engines, _configs(variables, hosts, arguments["configs"]))
            if known
            else Readings()
        )
        terms = Terms(
            found.models,
            found.unread,
            float(arguments.get("measured_bandwidth") or 0) * 1e9 or None,
            settled=not is_true(arguments.get("early", False)),
            allow_unfit=is_true(arguments.get("allow_unfit", False)),
            fill=is_true(arguments.get("fill", False)),
        )
        base = int(arguments.get("port_base", INTERNAL_BASE))
        return make_plan(str(arguments["cluster"]), engines, capacities, kept, base, terms)


def _configs(variables: Mapping[str, Any], hosts: Sequence[str], name: str) -> dict[str, Any]:
    """Return what hosts read of the engines' models: of each engine the first that could."""
    found: dict[str, Any] = {}
    for host in hosts:
        read = plain(variables["hostvars"][host].get(name) or {})
        for name, config in (read.get("configs") or {}).items():
            if not found.get(name, {}).get("config"):
                found[name] = config
    return found


def _device(site: Mapping[str, Any], own: Mapping[str, Any]) -> Accelerator | None:
    """Return what a host's devices are, with the memory that their driver reports.

    None for a processor, whose layout nobody plans, and for a device of which nothing is known. One
    of a name that is not listed has its driver's memory and a plain device's speed, and says so.
    """
    name, memory = str(site.get("accelerator_name") or ""), site.get("accelerator_memory_bytes")
    if not has_devices(site["accelerator"]) or not name:
        return None
    try:
        found = accelerator(name, own)
    except PlanError:
        like = platform(site["accelerator"]).plain
        if not like or not memory:
            return None
        found = replace(
            accelerator(like, own),
            name=name,
            assumed=(f"{name} is not a known accelerator: planned with its memory, and as fast as "
                     f"{like}; describe it in the variable accelerators",),
        )  # fmt: skip
    return replace(found, memory_bytes=int(memory or 0) or found.memory_bytes)


def _unchecked(plan: Plan) -> list[str]:
    """Return a sentence for each engine of which nobody knows whether it fits."""
    return [f"fit of {name} not checked: {why}" for name, why in plan.unchecked.items()]


def _devices(arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, int]:
    """Return of each host with accelerators how many it has."""
    hosts = hosts_of_this_run(variables)
    site = of_each_host(variables, hosts, arguments["hosts"])
    return {
        host: int(site[host]["accelerator_count"])
        for host in hosts
        if has_devices(site[host]["accelerator"])
    }


def _surprises(
    capacities: Sequence[Capacity], declared: Mapping[str, Any], own: Mapping[str, Any]
) -> list[str]:
    """Return a sentence for each host whose devices are not those that were declared."""
    found = []
    for capacity in capacities:
        name = str(declared[capacity.host].get("accelerator_model") or "")
        if not name or capacity.device is None:
            continue
        if accelerator(name, own).name != capacity.device.name:
            found.append(
                f"{capacity.host} has {capacity.device.name} where {name} was declared: what is "
                "there counts"
            )
    return found
