"""What an inventory says of a cluster that a script alone is to serve, checked beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os.path import expanduser
from pathlib import Path
from typing import Any

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.accelerators.platform import USUAL, has_devices
from vllm_ansible.inventory import cluster
from vllm_ansible.node.environment.given_image import is_image
from vllm_ansible.node.weights.model_config import facts
from vllm_ansible.node.weights.models import model_of
from vllm_ansible.plan.plan import Plan
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.ports import INTERNAL_BASE
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.slurm.settings import READ, Settings, settings

WHERE = "the inventory"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A plan and all else that the script depends on; seconds are of silence, not of time in all.

    `environment` is the directory of a Python environment on the nodes, an image of Apptainer, or
    lines that bring one.
    `models` has by engine its `path`, and with several
    data ranks what they depend on. `hosts` are the inventory's, in the order of Slurm's nodes.
    """

    settings: Settings
    plan: Plan
    hosts: tuple[str, ...]
    accelerator: str
    accelerator_count: int
    environment: tuple[str, ...]
    models: Mapping[str, Mapping[str, Any]]
    key_file: str = ""
    network: str = ""
    interface: str = ""
    join_seconds: float = 60
    load_seconds: float = 180
    answer_seconds: float = 300

    @property
    def has_devices(self) -> bool:
        """Tell whether the nodes compute with devices and not with their own processors."""
        return has_devices(self.accelerator)

    @property
    def image(self) -> str:
        """Return the image that has vLLM and Ray, empty where they are in no image."""
        one = self.environment[0].rstrip("/")
        return one if one.startswith("/") and is_image(one) else ""


def wanted(
    hosts: Mapping[str, Mapping[str, Any]], read_models: cluster.ReadModels | None = None
) -> Wanted:
    """Return what the script needs, or raise PlanError with all that is wrong.

    hosts: every variable of each host of the group gpu, roles' defaults included. read_models: see
    cluster.estimate.
    """
    first = next(iter(hosts.values()), {})
    if first.get("provision_provider") != "slurm":
        raise PlanError(_no_slurm(str(first.get("provision_provider") or "")))
    asked = settings({name: first[name] for name in READ if name in first}, WHERE)
    kind = _kind(first)
    problems = [*_environment_problems(first), *_count_problems(first, kind)]
    declared = {name: {**variables, "accelerator": kind} for name, variables in hosts.items()}
    base = cluster.whole_number(first.get("port_base"), INTERNAL_BASE)
    _, plan, refused = cluster.estimate(
        asked.cluster,
        first.get("engines"),
        declared,
        base,
        read_models,
        # What the job would find out later, a script alone cannot act upon.
        settled=not cluster.is_true(first.get("plan_allow_unchecked")),
    )
    problems += refused
    if problems or plan is None:
        raise PlanError(problems or Problem("the engines cannot be planned", where="engines"))
    own = str(first.get("models_dir") or "") or f"{asked.directory}/models"
    return Wanted(
        settings=asked,
        plan=plan,
        hosts=tuple(hosts),
        accelerator=kind,
        accelerator_count=cluster.whole_number(first.get("accelerator_count"), 0) or 1,
        environment=_environment(first),
        models={one.name: _model(one, expanduser(own)) for one in plan.engines},
        key_file=expanduser(str(first.get("vllm_api_key_file") or "")),
        network=str(first.get("data_plane_network") or ""),
        interface=str(first.get("data_plane_interface") or ""),
        join_seconds=float(first.get("ray_join_silence_seconds") or 60),
        load_seconds=float(first.get("vllm_silence_seconds") or 180),
        answer_seconds=float(first.get("vllm_first_answer_timeout_seconds") or 300),
    )


def _model(engine: PlannedEngine, models_dir: str) -> dict[str, Any]:
    """Return where an engine's weights are, and what its data ranks have to know of them."""
    path = model_of(asdict(engine)).place(models_dir)
    if engine.layout.data == 1:
        return {"path": path}
    if not Path(path, "config.json").is_file():
        raise PlanError(
            Problem(
                f"whether the data ranks of engine {engine.name} share experts cannot be read",
                expected=f"config.json of {engine.model} in {path}",
                found="no such file on this machine",
                where=f"engine {engine.name}",
                fix="bring the weights there first, or ask on a machine that sees them",
            )
        )
    return {"path": path, **facts(path)}


def _kind(variables: Mapping[str, Any]) -> str:
    """Return what the nodes compute with: as declared, of the model, or what Slurm calls GPU."""
    kind = str(variables.get("accelerator") or "auto")
    model = str(variables.get("accelerator_model") or "")
    if kind != "auto":
        return kind
    own = variables.get("accelerators")
    return accelerator(model, own if isinstance(own, Mapping) else None).kind if model else USUAL


def _environment(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lines that leave the directory of the environment in ENVIRONMENT."""
    value = variables.get("slurm_environment") or variables.get("environment_path")
    return tuple(value) if isinstance(value, list) else (str(value or ""),)


def _environment_problems(variables: Mapping[str, Any]) -> list[Problem]:
    """Return what keeps the nodes from having vLLM and Ray."""
    value = variables.get("slurm_environment") or variables.get("environment_path")
    expected = (
        "the directory of an environment that has vLLM and Ray, an image of Apptainer that has "
        "them, or a list of lines for a shell after which `vllm` is on PATH"
    )
    if isinstance(value, list) and value and all(isinstance(one, str) and one for one in value):
        return []
    if isinstance(value, str) and value.startswith("/"):
        return []
    found = repr(value) if value else "nothing"
    return [
        Problem(
            f"slurm_environment is {value!r}" if value else "slurm_environment is not set",
            expected=expected,
            found=found,
            where=WHERE,
            fix="set slurm_environment: /path/to/venv, or [module load mamba, mamba activate vllm]",
        )
    ]


def _count_problems(variables: Mapping[str, Any], kind: str) -> list[Problem]:
    """Return the refusal to plan devices that nobody has counted."""
    if not has_devices(kind) or cluster.whole_number(variables.get("accelerator_count"), 0):
        return []
    return [
        Problem(
            "how many GPUs a node has is not said",
            expected="the number of GPUs that Slurm is asked for on each node",
            found="neither slurm_gpus_per_node nor slurm_gres",
            where=WHERE,
            fix='set slurm_gpus_per_node: 4 or slurm_gres: "gpu:h100:4", as the site takes it',
        )
    ]


def _no_slurm(provider: str) -> Problem:
    return Problem(
        "this inventory is not one of Slurm",
        expected="hosts of the inventory plugin slurm_nodes",
        found=f"hosts of the provider {provider}" if provider else "hosts that exist already",
        where=WHERE,
        fix="name an inventory such as inventories/slurm with -i",
    )
