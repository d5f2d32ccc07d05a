"""Refuse to start what earlier stages have not made ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.plan.plan import Plan
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.problem import PlanError, Problem


def refuse_unready(
    plan: Plan,
    environments: Mapping[str, Mapping[str, str]],
    models: Mapping[str, Mapping[str, Any]],
) -> None:
    """Refuse to start an engine on a host of this run that lacks its environment or weights."""
    problems = []
    for engine in plan.engines:
        for host in [host for host in engine.hosts if host in environments]:
            if not environments[host].get("fingerprint"):
                problems.append(_unready(engine, host, "environment", "install"))
            elif engine.entry not in models[host]:
                problems.append(_unready(engine, host, "weights", "weights"))
    if problems:
        raise PlanError(problems)


def _unready(engine: PlannedEngine, host: str, what: str, stage: str) -> Problem:
    """Return the refusal to start an engine whose earlier stages were left out."""
    return Problem(
        f"engine {engine.name} cannot start on {host}: no complete {what} there",
        expected=f"complete {what} on every host of engine {engine.name}",
        found=f"none, or one that changed, on {host}",
        where=host,
        fix=f"run the stage {stage} first (--tags {stage}), or all of site.yml",
    )
