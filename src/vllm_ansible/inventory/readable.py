"""The models of an engine list whose configuration can be read, and of the others why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.estimate.architectures.carried import CONFIGS
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.source import from_host
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.hub import model_of
from vllm_ansible.plan.model_arguments import model_options
from vllm_ansible.problem import PlanError


@dataclass(frozen=True)
class Readings:
    """Models by engine; of an engine whose model could not be read, why."""

    models: Mapping[str, Model] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


def readable(
    engines: Sequence[Engine], configs: Mapping[str, Mapping[str, Any]] | None = None
) -> Readings:
    """Return what can be known of the engines' models.

    configs: by engine, what a host read of the files there; it counts before all else. Without it
    a directory of the controller, the small files of the hub, or what a package is known to carry.
    """
    models: dict[str, Model] = {}
    unread: dict[str, str] = {}
    for engine in engines:
        try:
            model = _model(engine, (configs or {}).get(engine.name) or {})
        except PlanError as error:
            unread[engine.name] = " ".join(problem.message for problem in error.problems)
            continue
        if isinstance(model, str):
            unread[engine.name] = model
        else:
            models[engine.name] = model
    return Readings(models, unread)


def _model(engine: Engine, found: Mapping[str, Any]) -> Model | str:
    """Return the model of one engine, or why it cannot be read."""
    options = model_options(engine)
    if found.get("config"):
        return from_host(found, engine.model, **options)
    missing = str(found.get("missing") or "")
    if engine.model_source in ("hub", "path"):
        try:
            return model_of(engine.model, **options)
        except PlanError as error:
            here = " ".join(problem.message for problem in error.problems)
            return f"{missing}; {here}" if missing else here
    if engine.model_source == "package" and engine.model in CONFIGS:
        where = f"package:{engine.model}"
        known = Settings(CONFIGS[engine.model], where)
        return understand(known, engine.model, None, None, **options)
    if missing:
        return missing
    if engine.model_source == "s3":
        return f"the controller does not read {engine.model}"
    return f"{engine.model_source}:{engine.model} is not made yet"
