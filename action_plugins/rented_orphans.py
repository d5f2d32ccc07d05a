"""List what this cluster does not claim and the account pays for; see library/rented_orphans.py."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.problem import PlanError, Problem, as_result
from vllm_ansible.provision.orphans import counted, unknown
from vllm_ansible.provision.price import dollars
from vllm_ansible.provision.provider import provider

STATE = Path(__file__).resolve().parents[1] / "state"


class ActionModule(ActionBase):
    """Ask from the controller; end only what was named by its id."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the orphans, as lines and as data."""
        variables = task_vars or {}
        result = dict(super().run(tmp, variables))
        _, asked = self.validate_argument_spec(
            argument_spec={"end": {"type": "list", "elements": "str", "default": []}}
        )
        cloud = provider(str(variables["provision_provider"]))
        own = {
            name: plain(self._templar.template(variables[name]))
            for name in cloud.read
            if name in variables
        }
        try:
            cluster = cloud.cluster(cloud.settings(own, "the inventory"), STATE)
            found = cluster.orphans()
            if strangers := unknown(asked["end"], found):
                raise PlanError(_no_orphan(strangers))
            gone = set(asked["end"])
            if gone and not self._task.check_mode:
                gone &= cluster.end_orphans(sorted(gone))
        except PlanError as refused:
            return {**result, "failed": True, **as_result(refused.problems)}
        except cloud.errors as error:
            return {**result, "failed": True, **cloud.refusal(error)}
        cents = sum(one.cents_per_hour for one in found if one.id not in gone)
        word = "would be ended: " if self._task.check_mode else "ended: "
        lines = [f"{word if one.id in gone else ''}{one.line()}" for one in found]
        left = [one for one in found if one.id not in gone]
        total = f"{counted(left)} that this cluster does not claim, {dollars(cents)}"
        none = "this cluster claims every instance that is left"
        if cluster.unseen:
            none = "no other instance where it was looked for"
        return {
            **result,
            "changed": bool(gone),
            "orphans": [asdict(one) for one in found],
            "lines": [
                *lines,
                *(f"not looked at: {one}" for one in cluster.unseen),
                total if left else none,
            ],
        }


def _no_orphan(strangers: list[str]) -> Problem:
    return Problem(
        f"{', '.join(strangers)} cannot be ended here",
        expected="ids of instances that the list of orphans shows",
        found=", ".join(strangers),
        where="end_orphans",
        fix="run the same command without end_orphans and take ids from what it prints",
    )
