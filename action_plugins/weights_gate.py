"""Compare the models of each engine over its hosts; touches no host."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.node.weights.models import differences
from vllm_ansible.problem import PlanError, as_result


class ActionModule(ActionBase):
    """The gate of the stage weights: every host that serves a model has it whole, and the same.

    Reads what the role weights registered on each host.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence, or say which host lacks what."""
        result = dict(super().run(tmp, task_vars))
        variables = task_vars or {}
        hosts = hosts_of_this_run(variables)
        try:
            looks = of_each_host(variables, hosts, "__weights_look")
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        missing = [f"{engine} on {host}" for host in hosts for engine in looks[host]["missing"]]
        if missing and self._task.check_mode:
            return {**result, "skipped": True, "skip_reason": f"not fetched yet: {missing[0]}"}
        if missing:
            return {
                **result,
                "failed": True,
                "msg": f"the models of some engines are missing: {', '.join(missing)}",
                "expected": "every model on every host of its engine",
                "found": f"without {', '.join(missing)}",
                "where": missing[0],
                "fix": "run the stage weights again",
            }
        found = {host: looks[host]["models"] for host in hosts}
        problems = differences(found)
        if problems:
            first = problems[0]
            return {
                **result,
                "failed": True,
                "msg": f"the model of engine {first['engine']} is not the same on all its hosts",
                **{key: first[key] for key in ("expected", "found", "where")},
                "fix": "remove the copy that is wrong and run the stage weights again, or have all "
                "of them compared with what is outside (-e weights_rehash=true); a directory that "
                "was named must be the same on every host",
            }
        mended = {host: damaged(variables["hostvars"][host]) for host in hosts}
        for host, defects in mended.items():
            for defect in defects:
                self._display.warning(f"{host}: {defect}; it was fetched again")
        return {**result, "changed": False, "evidence": evidence(found, mended)}


def damaged(variables: Mapping[str, Any]) -> list[str]:
    """Return what this run found damaged on a host, in words."""
    fetched = plain(variables.get("__weights_fetched", {}))
    return [str(one) for one in (fetched.get("result") or {}).get("defects", ())]


def evidence(
    found: dict[str, dict[str, dict[str, Any]]], mended: dict[str, list[str]]
) -> dict[str, Any]:
    """Return what was proven, one entry for each engine, and what was damaged, by host."""
    engines: dict[str, dict[str, Any]] = {}
    for host, models in found.items():
        for name, model in models.items():
            entry = engines.setdefault(
                name,
                {
                    "name": name,
                    "model": model["model"],
                    "bytes": model["bytes"],
                    "files": model["files"],
                    "fingerprint": model["fingerprint"],
                    "hosts": [],
                },
            )
            entry["hosts"].append(host)
    texts = [
        f"{one['name']}: {one['model']}, {one['bytes'] / 2**20:.0f} MiB"
        f" on {len(one['hosts'])} host(s)"
        for one in engines.values()
    ]
    count = sum(map(len, mended.values()))
    texts += [f"{count} damaged file(s) fetched again"] if count else []
    return {
        "gate": "weights",
        "summary": "; ".join(texts) or "no engine needs weights",
        "values": {"engines": list(engines.values()), "mended": mended},
    }
