"""What an inventory may say about an allocation, and what it is told where it may not."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.slurm.settings import Settings, seconds, settings

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
        ("slurm_drain_seconds", 59, "slurm_drain_seconds is 59"),
        ("slurm_drain_seconds", 65536, "slurm_drain_seconds is 65536"),
        ("slurm_drain_seconds", 3 * 24 * 3600, "slurm_drain_seconds is 259200"),
        ("slurm_time", "5", "slurm_drain_seconds is 300"),
        ("slurm_time", "4:59", "is 300, and the whole job has 299 s"),
        ("slurm_at_end", "stop", "slurm_at_end is 'stop'"),
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


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("6:00:00", 21600),
        ("3-00:00:00", 259200),
        ("1-12", 129600),
        ("1-2:30", 95400),
        ("UNLIMITED", None),
    ],
)
def test_a_time_is_read_as_sbatch_reads_it(limit: str, found: int | None) -> None:
    assert seconds(limit) == found


def test_draining_may_be_left_out_or_longer() -> None:
    assert settings(GIVEN, "all.yml").drain_seconds == 300
    off = settings(GIVEN | {"slurm_time": "1", "slurm_drain_seconds": 0}, "all.yml")
    assert off.serving_seconds == 0
    # Ranks, Ray and files have their time after it.
    long = settings(GIVEN | {"slurm_drain_seconds": "600"}, "all.yml")
    assert long.serving_seconds == 560
    least = settings(GIVEN | {"slurm_drain_seconds": 60}, "all.yml")
    assert least.serving_seconds > 0


def test_nothing_asks_for_a_requeue_without_draining() -> None:
    (told,) = refused(slurm_at_end="requeue", slurm_drain_seconds=0)
    assert "a job is put back and not drained" in told
