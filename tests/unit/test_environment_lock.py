"""The lock of an engine follows the oldest driver of its cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.environment_lock import cuda_lock, lock_of, lock_summary
from vllm_ansible.planner.problem import PlanError
from vllm_ansible.preflight.request import cuda_of

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


def host(
    name: str, driver: str, accelerator: str = "nvidia", architecture: str = "x86_64"
) -> dict[str, str]:
    return {
        "name": name,
        "accelerator": accelerator,
        "driver_version": driver,
        "architecture": architecture,
    }


def test_a_driver_that_knows_cuda_13_takes_its_lock() -> None:
    new = host("n1", "580.65.06")
    assert lock_of(new, [new]) == "cuda"
    assert lock_summary(new, [new]) == "an environment is locked for nvidia"


@pytest.mark.parametrize("driver", ["525.60.13", "550.163.01", "575.57.08"])
def test_the_oldest_driver_of_the_cluster_decides_for_all(driver: str) -> None:
    new, old = host("n1", "580.65.06"), host("n2", driver)
    assert [lock_of(one, [new, old]) for one in (new, old)] == ["cuda12", "cuda12"]
    assert f"CUDA 12 (driver {driver} on n2)" in lock_summary(new, [new, old])


def test_a_driver_that_does_not_answer_decides_nothing() -> None:
    silent = host("n1", "")
    assert lock_of(silent, [silent]) == "cuda"


def test_other_accelerators_have_locks_of_their_own_or_none() -> None:
    old, cpu = host("n1", "550.163.01"), host("n2", "", "cpu")
    assert lock_of(cpu, [old, cpu]) == "cpu"
    assert lock_of(host("n3", "", "enflame"), [old]) == ""


@pytest.mark.parametrize(
    ("driver", "architecture", "expected"),
    [
        ("470.256.02", "x86_64", "branch 525 or later, 580 for CUDA 13"),
        ("570.148.08", "aarch64", "branch 580 or later on aarch64"),
    ],
)
def test_what_no_lock_serves_is_refused_with_its_driver(
    driver: str, architecture: str, expected: str
) -> None:
    old = host("n1", driver, architecture=architecture)
    with pytest.raises(PlanError) as refused:
        lock_of(old, [old])
    (problem,) = refused.value.problems
    assert (problem.where, problem.expected) == ("n1", expected)
    assert driver in problem.found
    # What judges an environment of the user's own still knows a release to compare with.
    assert cuda_lock([old]) == "cuda12"


@pytest.mark.parametrize(("name", "release"), [("cuda", "13.0"), ("cuda12", "12.8")])
def test_each_lock_says_for_which_cuda_it_is(name: str, release: str) -> None:
    assert cuda_of((REQUIREMENTS / f"engine-{name}.txt").read_text()) == release
