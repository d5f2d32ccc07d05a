"""What an inventory may say about an allocation, and what it is told where it may not."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.planner.problem import PlanError
from vllm_ansible.slurm.settings import Settings, settings

GIVEN: dict[str, Any] = {
    "cluster_name": "r1",
    "slurm_nodes": 4,
    "slurm_gpus_per_node": 4,
    "slurm_time": "3-00:00:00",
    "slurm_extra_args": ["--exclusive"],
    "site_setup": ["module load cuda"],
    "shared_dir": "/scratch/me/vllm",
}


def refused(**changes: Any) -> list[str]:
    with pytest.raises(PlanError) as error:
        settings(GIVEN | changes, "all.yml")
    return [problem.sentence() for problem in error.value.problems]


def test_what_is_given_is_taken() -> None:
    found = settings(GIVEN, "all.yml")
    assert found.extra_args == ("--exclusive",)
    assert (found.job_name, found.directory) == ("vllm-r1", "/scratch/me/vllm/r1")
    assert found.gpus == (4, "")


def test_numbers_of_the_command_line_are_numbers() -> None:
    assert settings(GIVEN | {"slurm_nodes": "2"}, "all.yml").nodes == 2


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [("gpu:h100:4", (4, "h100")), ("gpu:8", (8, "")), ("gpu", (1, "")), ("gpu:a100", (1, "a100"))],
)
def test_a_gres_says_how_many_of_what(gres: str, gpus: tuple[int, str]) -> None:
    given = GIVEN | {"slurm_gres": gres, "slurm_gpus_per_node": 0}
    assert settings(given, "all.yml").gpus == gpus


def test_all_that_is_missing_is_told_at_once() -> None:
    told = refused(slurm_nodes=None, shared_dir="")
    assert len(told) == 2
    assert "slurm_nodes is not set (all.yml)" in told[0]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        # YAML reads 6:00:00 as this number, and sbatch would as minutes.
        ("slurm_time", 21600, "put it in quotes"),
        ("slurm_time", "soon", "slurm_time is 'soon'"),
        ("slurm_gres", "h100:4", "slurm_gres is 'h100:4'"),
        ("slurm_nodes", 0, "slurm_nodes is 0"),
        ("shared_dir", "~/vllm", "shared_dir is '~/vllm'"),
        ("slurm_extra_args", "--exclusive", "slurm_extra_args is '--exclusive'"),
        ("cluster_name", "R1", "cluster_name is 'R1'"),
    ],
)
def test_a_value_that_cannot_be_is_refused(variable: str, value: Any, words: str) -> None:
    (told,) = refused(**{"slurm_gpus_per_node": 0, variable: value})
    assert words in told


def test_gpus_are_asked_for_in_one_form() -> None:
    (told,) = refused(slurm_gres="gpu:4")
    assert "GPUs are asked for twice" in told


def test_a_job_is_marked_by_what_it_was_asked_for_with() -> None:
    one = Settings("r1", 4, "/scratch/a", "gpu")
    assert one.digest == Settings("r1", 4, "/scratch/b", "gpu").digest
    assert one.digest != Settings("r1", 4, "/scratch/a", "other").digest
