"""How long an engine that is asked to end may finish what it was asked."""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.planner.engines import Engine


def patient(engine: Engine, seconds: int) -> Engine:
    """Return an engine that has so many seconds for requests it has when it is asked to end.

    Without, it drops them at once. What the engine's own arguments say counts.
    """
    if not seconds:
        return engine
    return replace(engine, vllm_args={"shutdown_timeout": seconds, **engine.vllm_args})
