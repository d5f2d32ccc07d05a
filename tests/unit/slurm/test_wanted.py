from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.slurm.processes import engine_starts
from vllm_ansible.slurm.wanted import wanted

from .layouts import CHAT, ONE, inventory

ENGINES = [{**CHAT, "layout": {"tensor": 4}}]


def refused(nodes: int = 1, **changes: Any) -> str:
    with pytest.raises(PlanError) as caught:
        engine_starts(wanted(inventory(nodes, **{"engines": ENGINES, **changes})))
    return str(caught.value)


def test_hosts_that_slurm_does_not_give_are_refused() -> None:
    assert "this inventory is not one of Slurm" in refused(provision_provider="")
    with pytest.raises(PlanError, match="not one of Slurm"):
        wanted({})


@pytest.mark.parametrize("value", ["", None, "venv", [], [""], ["a", 7], {"a": 1}])
def test_an_environment_has_to_be_named(value: object) -> None:
    assert "module load mamba" in refused(slurm_environment=value)


def test_an_environment_of_ones_own_counts_here_too() -> None:
    hosts = inventory(1, engines=ENGINES, slurm_environment="", environment_path="/conda/vllm")
    assert wanted(hosts).environment == ("/conda/vllm",)


def test_devices_have_to_be_counted() -> None:
    assert 'slurm_gres: "gpu:h100:4"' in refused(accelerator_count=0)


def test_all_that_is_wrong_is_told_at_once() -> None:
    words = refused(slurm_environment="", accelerator_count=0, engines=[{**CHAT, "nodez": 2}])
    assert all(one in words for one in ("slurm_environment", "how many GPUs", "nodez"))


def test_the_planners_own_refusal_is_told() -> None:
    words = refused(engines=[{**CHAT, "layout": {"tensor": 8}}])
    assert "engine chat needs 8 accelerators" in words


def test_settings_of_slurm_are_judged_as_ever() -> None:
    assert "put it in quotes" in refused(slurm_time=21600)


def test_a_text_that_looks_like_a_variable_of_ours_is_refused() -> None:
    engines = [{**ENGINES[0], "served_name": "a\ue000DIRECTORY\ue001"}]
    assert "characters of no language" in refused(engines=engines)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "nvidia"),
        ({"accelerator_model": "H100-80"}, "nvidia"),
        ({"accelerator": "enflame"}, "enflame"),
    ],
)
def test_what_computes_is_as_declared_or_what_slurm_calls_gpu(
    changes: dict[str, Any], kind: str
) -> None:
    assert wanted(inventory(1, engines=ENGINES, **changes)).accelerator == kind


def test_weights_are_where_the_stage_weights_puts_them() -> None:
    hub = {"name": "hub", "model": "org/name", **ONE}
    assert wanted(inventory(1, engines=[hub])).models == {
        "hub": {"path": "/scratch/me/vllm/r1/models/org--name"}
    }
    own = wanted(
        inventory(1, engines=[hub, {**CHAT, **ONE, "port": 9000}], models_dir="/srv/models")
    )
    assert own.models == {
        "hub": {"path": "/srv/models/org--name"},
        "chat": {"path": "/models/chat"},
    }


def test_data_ranks_of_a_model_that_nobody_can_read_are_refused() -> None:
    engines = [{**CHAT, "layout": {"tensor": 2, "data": 2}, "executor": "dp"}]
    assert "share experts cannot be read" in refused(engines=engines)


def test_a_layout_that_nobody_could_plan_is_no_script() -> None:
    assert "engine chat has layout: auto, and nothing can be planned" in refused(engines=[CHAT])
    asked = wanted(inventory(1, engines=[CHAT], plan_allow_unchecked="true"))
    assert list(asked.plan.unchecked) == ["chat"]
