"""The models of an engine list whose configuration the controller can read."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.layouts.hub import model_of
from vllm_ansible.models.model import Model
from vllm_ansible.planner.engines import Engine
from vllm_ansible.planner.problem import PlanError


def readable(engines: Sequence[Engine]) -> dict[str, Model]:
    """Return models by engine: from a directory here, or the small files of the hub.

    What cannot be read, since it lies on the hosts only or the hub is out of reach, is left out.
    """
    models = {}
    for engine in engines:
        if engine.model_source not in ("hub", "path"):
            continue
        try:
            models[engine.name] = model_of(engine.model)
        except PlanError:
            continue
    return models
