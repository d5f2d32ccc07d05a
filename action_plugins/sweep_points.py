"""Decide which points of a sweep are left to measure; touches no host."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.plan.pairs import is_apart
from vllm_ansible.plan.servers import entry_of
from vllm_ansible.problem import PlanError, Problem, as_result
from vllm_ansible.sweep import kept, points

# What tasks/sweep_point.yml gives each point; -e would go before it.
OF_POINTS = (
    "engines",
    "benchmark_again",
    "benchmark_concurrency",
    "benchmark_engine",
    "benchmark_input_tokens",
    "benchmark_output_tokens",
    "benchmark_requests",
)


class ActionModule(ActionBase):
    """Return the points that are left, each with the engines and the load it wants.

    engine is a name, or empty where there is one engine; engines is the inventory's list, plan the
    present plan, kept what the last sweep left, by engine. max_num_seqs, max_num_batched_tokens and
    points are the user's; load is what is asked of each point; environment is its fingerprint.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return document, left and before, or refuse what cannot be measured."""
        result = dict(super().run(tmp, task_vars))
        wanted = plain(self._task.args)
        try:
            _refuse_said_before(load_extra_vars(self._loader))
            return {**result, "changed": False, **_decided(wanted)}
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}


def _refuse_said_before(extra: Mapping[str, Any]) -> None:
    """Refuse what -e says of engines and load: it goes before what each point says of them."""
    said = [name for name in OF_POINTS if name in extra]
    if said:
        raise PlanError(
            Problem(
                f"-e says {', '.join(said)}, and every point of a sweep has its own",
                expected="engines in the inventory, and the load by sweep_...",
                found=f"-e {', '.join(said)}",
                where="-e on the command line",
                fix="write engines into group_vars, and the load as sweep_rounds, "
                "sweep_input_tokens and sweep_output_tokens",
            )
        )


def _decided(wanted: dict[str, Any]) -> dict[str, Any]:
    asked = points.points(
        wanted["max_num_seqs"], wanted["max_num_batched_tokens"], wanted["points"]
    )
    load = points.Load(**{name: int(value) for name, value in wanted["load"].items()})
    before = kept.before_of(wanted["kept"], wanted["plan"])
    planned = _planned(before, wanted["engine"])
    engine = _wanted(wanted["engines"], planned["name"])
    mark = points.fingerprint(planned, load, wanted["environment"], engine)
    document = kept.begun(
        wanted["kept"], planned["name"], mark, wanted["plan"], bool(wanted["again"])
    )
    left = kept.left(document, asked, bool(wanted["failed_again"]))
    return {
        "document": document,
        "planned": planned,
        # A sweep that was cut short has left the engine as one of its points wants it.
        "disturbed": bool(wanted["kept"].get("before")),
        "left": [
            {
                "name": point.name,
                "point": point.to_dict(),
                "engines": points.engines_at(wanted["engines"], planned, point),
                "load": load.settings(point),
            }
            for point in left
        ],
    }


def _planned(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the engine that is meant, as it was planned before the sweep."""
    engines: list[dict[str, Any]] = plan.get("engines") or []
    names = [engine["name"] for engine in engines]
    if name in names or (len(names) == 1 and not name):
        found = engines[names.index(name) if name else 0]
        _refuse_parts(found, engines)
        _refuse_apart(found)
        return found
    raise PlanError(
        Problem(
            f"there is no engine {name}" if name else "which engine is to be measured?",
            expected=f"one of {', '.join(names)}" if names else "an engine that was planned",
            found=name or "none was named",
            where="sweep_engine",
            fix="set sweep_engine" if names else "run site.yml first",
        )
    )


def _refuse_apart(found: Mapping[str, Any]) -> None:
    """Refuse an engine of prefill or decode: clients ask the address of its set, not this one."""
    if is_apart(found):
        raise PlanError(
            Problem(
                f"{found['name']} has role: {found['role']}, and what is measured at the address "
                "of its set is the rate of all its engines",
                expected="an engine that answers clients alone",
                found=f"role: {found['role']}",
                where="sweep_engine",
                fix="sweep the model without role, and set the roles after it",
            )
        )


def _refuse_parts(found: Mapping[str, Any], engines: Sequence[Mapping[str, Any]]) -> None:
    """Refuse an engine of a set: a point plans its entry anew, and the others of it would end."""
    entry = entry_of(found)
    family = [str(one["name"]) for one in engines if entry_of(one) == entry]
    if len(family) > 1:
        raise PlanError(
            Problem(
                f"{entry} with layout: auto is the engines {', '.join(family)}, and a sweep is of "
                "an engine with an entry of its own",
                expected="an entry for each engine",
                found=f"{len(family)} engines of the entry {entry}",
                where="engines",
                fix="list the engines that vllm-ansible plan prints, then run site.yml",
            )
        )


def _wanted(engines: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """Return the engine as the inventory has it."""
    for engine in engines:
        if engine["name"] == name:
            return engine
    raise PlanError(
        Problem(
            f"the inventory has no engine {name} any more",
            expected=f"the engine {name}, which was planned",
            found=", ".join(str(engine["name"]) for engine in engines) or "no engine",
            where="engines",
            fix="run site.yml first, or set sweep_engine",
        )
    )
