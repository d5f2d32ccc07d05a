"""What may be done with a plan when a run sees only some of its hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.plan import Plan, as_before
from vllm_ansible.problem import PlanError, Problem


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
    wanted = {engine.name: engine for engine in engines}
    stays = {
        before.name: as_before(wanted[before.entry], before) if before.entry in wanted else None
        for before in kept.engines
    }
    served = {before.entry for before in kept.engines}
    gone = {before.entry for before in kept.engines if not stays[before.name]}
    changed = sorted(gone | {name for name in wanted if name not in served})
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
    return replace(kept, engines=tuple(one for one in stays.values() if one))
