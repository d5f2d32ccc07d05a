"""What may be done with a plan when a run sees only some of its hosts."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.planner.engines import Engine
from vllm_ansible.planner.plan import Plan, digest
from vllm_ansible.planner.planned_engine import plain
from vllm_ansible.planner.problem import PlanError, Problem


def plan_of_some_hosts(engines: Sequence[Engine], kept: Plan | None, hosts: Sequence[str]) -> Plan:
    """Return the kept plan, or refuse: only a run over all hosts may make a new one."""
    shown = ", ".join(hosts)
    if kept is None:
        raise PlanError(
            Problem(
                "no plan is kept yet, and a plan needs all hosts",
                expected="a first run without --limit",
                found=f"--limit leaves {shown}",
                where="--limit",
                fix="run without --limit",
            )
        )
    wanted = {engine.name: digest(plain(engine)) for engine in engines}
    planned = {engine.name: engine.request for engine in kept.engines}
    changed = sorted(name for name in wanted | planned if wanted.get(name) != planned.get(name))
    if changed:
        raise PlanError(
            Problem(
                f"{', '.join(changed)} changed since the kept plan, and a new plan needs all hosts",
                expected="engines as they were planned",
                found=f"{', '.join(changed)} changed; --limit leaves {shown}",
                where="engines",
                fix="run without --limit",
            )
        )
    return kept
