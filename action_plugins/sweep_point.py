"""Add to a sweep what became of one point; touches no host."""

from __future__ import annotations

import base64
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, plain
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.sweep import kept
from vllm_ansible.sweep.points import Point, check_measured


class ActionModule(ActionBase):
    """Return the document with the point, measured or failed.

    document is what is kept so far, point the two numbers, load what is asked at it, plan that of
    the point: its engine has the planner's expectation. Where it was measured, evidence names the
    variable in which a host has read what the stage benchmark keeps; else ansible_failed_result of
    the hosts says why.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the document, and a line about the point."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        wanted = plain(self._task.args)
        point = Point(**{name: int(value) for name, value in wanted["point"].items()})
        document = wanted["document"]
        each = [variables["hostvars"][host] for host in hosts_of_this_run(variables)]
        if wanted["measured"]:
            engines = {one["name"]: one for one in wanted["plan"]["engines"]}
            engine = engines[document["engine"]]
            read = next(one for host in each if (one := host[wanted["evidence"]].get("content")))
            figures = json.loads(base64.b64decode(read))["figures"]
            try:
                check_measured(engine, figures, point, wanted["load"])
            except PlanError as error:
                return {**result, "failed": True, **as_result(error.problems)}
            found = kept.measured(figures, engine.get("estimate") or {})
            words = f"{found['figures']['output_tokens_per_second']} tokens/s"
        else:
            failures = {
                str(host["inventory_hostname"]): plain(host.get("ansible_failed_result") or {})
                for host in each
            }
            now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
            found = kept.failed(failures, now)
            words = f"failed: {found['failure']['msg']}"
        return {
            **result,
            "changed": True,
            "document": kept.with_point(document, point, found),
            "evidence": {
                "gate": "sweep_point",
                "summary": f"{point.name}: {words}",
                "values": {"engine": document["engine"], **point.to_dict(), **found},
            },
        }
