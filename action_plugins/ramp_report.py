"""Judge that every engine's ramp has its points, and write them beside the record of the run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.benchmark import ramp
from vllm_ansible.benchmark.cost import engine_price
from vllm_ansible.benchmark.ramp_page import page
from vllm_ansible.benchmark.verdict import no_engine, unmeasured
from vllm_ansible.inventory.play_variables import gpu_hosts, hosts_of_this_run, plain


class ActionModule(ActionBase):
    """The gate of a ramp: each engine of the plan was measured to its knee.

    plan has the engines that were to be measured; whole is the whole plan, whose engines may share
    hosts and their price. found names the variable in which each host has what was found there.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence with the files that were written, or say what was not measured."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        plan, whole = plain(self._task.args["plan"]), plain(self._task.args["whole"])
        hosts = hosts_of_this_run(variables)
        known = {
            host: plain(variables["hostvars"][host].get(self._task.args["found"]) or {})
            for host in hosts
        }
        here = [engine for engine in plan.get("engines", ()) if engine["hosts"][0] in known]
        if not here:
            return {**result, **no_engine(plan.get("engines", ()), hosts)}
        prices = _prices(variables)
        found = []
        for engine in here:
            seen = known[engine["hosts"][0]].get(engine["name"], {})
            if not seen.get("running"):
                return {**result, **unmeasured(engine, seen)}
            if self._task.check_mode and seen["next"]:
                left = f"check mode: points of {engine['name']} are missing and are not measured"
                return {**result, "skipped": True, "msg": left}
            price = engine_price(engine, whole["engines"], prices)
            found.append(ramp.found(seen["document"], engine, price))
        files = _written(found)
        shown = f" ({', '.join(files)})" if files else ""
        return {
            **result,
            "changed": False,
            "evidence": {
                "gate": "ramp",
                "summary": "; ".join(map(ramp.line, found)) + shown,
                "values": {"engines": found, "files": files},
            },
        }


def _prices(variables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what is known of the price of each host, in US dollars an hour."""
    found = {}
    for host in gpu_hosts(variables):
        of_host = variables["hostvars"][host]
        machine = plain(of_host.get("provision_machine") or {})
        found[host] = {
            "given": of_host.get("benchmark_usd_per_hour"),
            "listed": machine.get("usd_per_hour"),
        }
    return found


def _written(found: list[dict[str, Any]]) -> list[str]:
    """Write JSON, CSV and the page of each engine; nothing where no run is recorded."""
    run_dir = os.environ.get("VLLM_ANSIBLE_RUN_DIR")
    files = []
    for one in found if run_dir else ():
        content = {
            "json": json.dumps(one, indent=2) + "\n",
            "csv": ramp.as_csv(one),
            "html": page(one),
        }
        for ending, text in content.items():
            path = Path(str(run_dir), f"ramp-{one['engine']}.{ending}")
            path.write_text(text, encoding="utf-8")
            files.append(str(path))
    return files
