"""Decide what each engine needs; see library/engine_decision.py."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_of_this_run, of_each_host, plain
from vllm_ansible.plan.decision import (
    STARTS,
    decide,
    of_engines,
    refuse_ray_steps,
    waiting_for_ray,
)
from vllm_ansible.plan.ladder import begun
from vllm_ansible.plan.plan import Plan
from vllm_ansible.plan.process_spec import SERVE
from vllm_ansible.plan.processes import wanted_processes
from vllm_ansible.plan.unready import refuse_unready
from vllm_ansible.problem import PlanError, as_result


class ActionModule(ActionBase):
    """Compare what the plan wants with what every host records, on the controller, once."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return for each host the steps to take, phase by phase."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = plain(self._task.args)
        hosts = hosts_of_this_run(variables)

        def each(name: str) -> dict[str, Any]:
            return of_each_host(variables, hosts, arguments[name])

        try:
            plan = Plan.from_dict(arguments["plan"])
            environments = each("environments")
            models = {
                host: {engine: _model(value) for engine, value in of_host.items()}
                for host, of_host in each("models").items()
            }
            if self._task.check_mode:
                # What a first run would make is not there yet, but its place is known.
                for host, places in each("places").items():
                    models[host] = {
                        **{engine: _model(place) for engine, place in places.items()},
                        **models[host],
                    }
            else:
                refuse_unready(plan, environments, models)
            wanted = wanted_processes(
                plan,
                each("hosts"),
                environments,
                models,
                _fingerprints(arguments.get("api_key_file"), plan),
            )
            found = each("looks")
            if not boolean(arguments.get("forget_rungs", False)):
                wanted = begun(wanted, found, plan.engines, each("hosts"))
            looks = {host: look.get("processes", look) for host, look in found.items()}
            names = [engine.name for engine in plan.engines]
            allow = boolean(arguments.get("allow_disruption", False))
            decision = decide(wanted, looks, names, allow)
            # Without a list all engines are decided on, with an empty one none.
            if isinstance(arguments.get("only"), list):
                decision = of_engines(decision, arguments["only"])
            if arguments.get("stage", "cluster") == "serve":
                refuse_ray_steps(decision)
        except PlanError as error:
            return {"failed": True, **as_result(error.problems)}
        return {
            "changed": False,
            **decision.to_dict(hosts),
            "differs": bool(decision.steps),
            "starts": any(step.phase == STARTS[SERVE] for step in decision.steps),
            "waiting": waiting_for_ray(decision),
        }


def _fingerprints(api_key_file: str | None, plan: Plan) -> dict[str, dict[str, str]]:
    """Return what else an engine depends on: a server reads its key at its start only."""
    path = Path(api_key_file or "")
    if not path.is_file():
        return {}
    key = hashlib.sha256(path.read_bytes().strip()).hexdigest()[:16]
    return {engine.name: {"api_key": key} for engine in plan.engines}


def _model(value: Any) -> dict[str, str]:
    """Return path and fingerprint of a model that may be given by its path alone."""
    return value if isinstance(value, dict) else {"path": str(value)}
