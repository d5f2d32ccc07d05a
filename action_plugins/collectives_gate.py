"""Judge the links between ranks; see library/collectives_gate.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.verify.bandwidths import Cluster
from vllm_ansible.verify.collectives.expected import believable
from vllm_ansible.verify.links import evidence, judge, slow_alone, with_first
from vllm_ansible.verify.row import failure, warnings, with_accepted


class ActionModule(ActionBase):
    """Decide on the controller, once, from what the coordinator found."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return rows, figures and evidence, or say what is slow."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        arguments = plain(self._task.args)
        try:
            site = of_each_host(variables, hosts_of_this_run(variables), "site_host")
            found = arguments["found"]
            ranks = {host: int(one["accelerator_count"]) for host, one in site.items()}
            if not found:
                return {**result, **self._nothing(arguments["backend"], ranks)}
            kept, known = arguments.get("kept") or None, arguments.get("accelerators")
            rows = judge(found, cluster(found, site, ranks), kept, known)
            if before := arguments.get("before"):
                first = judge(before, cluster(before, site, ranks), kept, known)
                rows = with_first(rows, first)
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        rows = with_accepted(rows, arguments.get("accept") or [])
        told = {"changed": False, "rows": [row.told() for row in rows], "links": found}
        if arguments.get("again") and slow_alone(rows):
            return {**result, **told, "again": True, "slow": failure(rows)["found"]}
        for words in warnings(rows):
            self._display.warning(words)
        # What names a place says more than that the whole is slow.
        return {
            **result,
            **told,
            "again": False,
            "evidence": evidence(found, rows),
            **failure(rows, first=("links", "cards")),
        }

    def _nothing(self, backend: str, ranks: Mapping[str, int]) -> dict[str, Any]:
        """Return the evidence where nothing was measured, and why."""
        if self._task.check_mode and sum(ranks.values()) > 1:
            return {"skipped": True, "skip_reason": "check mode loads no link"}
        summary = "one rank in all: nothing to measure between ranks"
        if sum(ranks.values()) > 1:
            summary = f"links are not measured: no library for {backend} accelerators is known here"
            self._display.warning(summary)
        gate = {"gate": "links", "summary": summary, "values": {"ranks": sum(ranks.values())}}
        return {"changed": False, "rows": [], "links": {}, "evidence": gate}


def cluster(found: Mapping[str, Any], site: Mapping[str, Any], ranks: Mapping[str, int]) -> Cluster:
    """Return what is to be known of the hosts."""
    links = found.get("links") or {}
    return Cluster(
        ranks,
        str(next(iter(site.values()))["interface"]),
        str(found["versions"]["device"]),
        believable(
            links.get("speed_mbit"), links.get("driver") or None, bool(links.get("physical"))
        ),
        tuple(links.get("link_layers", ())),
        float(links.get("ports", 0.0)),
        str(links.get("machine") or "") or None,
        int(links.get("efa") or 0),
    )
