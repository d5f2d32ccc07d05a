"""Compare the engine's environment over all hosts of the play; touches no host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host
from vllm_ansible.node.environment.build import same_everywhere
from vllm_ansible.problem import PlanError, as_result


class ActionModule(ActionBase):
    """The gate of the stage install: equal fingerprints, and the engine imports.

    Reads what the role environment registered on each host; a fingerprint exists only where the
    engine was imported.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or say which host differs in what."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        hosts = hosts_of_this_run(variables)
        try:
            looks = of_each_host(variables, hosts, "__environment_look")
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        missing = [host for host in hosts if not looks[host]["complete"]]
        if missing and self._task.check_mode:
            return {**result, "skipped": True, "skip_reason": "not built yet on " + missing[0]}
        if missing:
            return {
                **result,
                "failed": True,
                "msg": f"{', '.join(missing)}: no complete environment",
                "expected": "an environment that imports on every host",
                "found": "none",
                "where": ", ".join(missing),
                "fix": "run the stage install again",
            }
        manifests = {host: looks[host]["manifest"] for host in hosts}
        problems = same_everywhere(manifests)
        if problems:
            return {
                **result,
                "failed": True,
                "msg": f"the engine's environment differs: {problems[0]}",
                "expected": f"what {hosts[0]} has, on every host",
                "found": " / ".join(problems),
                "where": looks[hosts[0]]["directory"],
                "fix": "give all hosts one architecture, accelerator, CUDA toolkit and "
                "engine_python; what was changed by hand is mended by the stage install",
            }
        first = manifests[hosts[0]]
        versions = first["versions"]
        summary = ", ".join(f"{name} {versions[name]}" for name in ("vllm", "ray", "torch"))
        return {
            **result,
            "changed": False,
            "evidence": {
                "gate": "install",
                "summary": f"{summary}, Python {versions['python']}, equal on {len(hosts)} host(s)",
                "values": {**versions, "fingerprint": first["fingerprint"], "hosts": len(hosts)},
            },
        }
