"""The lock of an engine follows the oldest driver of its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.environment.lock import PYTHONS, cuda_lock, lock_of, lock_summary
from vllm_ansible.problem import PlanError
from vllm_ansible.verify.preflight.request import cuda_of

ROOT = Path(__file__).parents[3]
REQUIREMENTS = ROOT / "requirements"


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


def test_a_python_that_the_lock_of_a_host_does_not_serve_is_refused_before_anything_is_built(
    play: Any, tmp_path: Path
) -> None:
    site_host = {
        **host("here", "", "cpu"),
        "cluster_dir": str(tmp_path / "cluster"),
    }
    played = play(
        [{"name": "the role", "include_role": {"name": "environment"}}],
        {
            "here": {
                "engine_build": [],
                "engine_python": "3.12",
                "engine_source": "environment",
                "sources_environment": {},
                "site_host": site_host,
                "site_hosts": [site_host],
            }
        },
        environment={"ANSIBLE_ROLES_PATH": str(ROOT / "roles")},
    )
    refused = played["environment : Refuse accelerators that no environment is locked for"]
    assert refused["failed"]
    assert "requirements/engine-cpu.txt does not serve Python 3.12" in refused["msg"]
    assert "environment : Look at what is there" not in played.tasks


@pytest.mark.parametrize(
    ("accelerator", "driver", "lock", "python", "expected"),
    [
        ("cpu", "", "engine-cpu", "3.12", "engine_python: 3.11"),
        ("cpu", "", "engine-cpu", "3.13", "engine_python: 3.11"),
        ("nvidia", "580.65.06", "engine-cuda", "3.14", "engine_python: 3.11 or 3.12 or 3.13"),
        ("nvidia", "550.163.01", "engine-cuda12", "3.10", "engine_python: 3.11 or 3.12 or 3.13"),
    ],
)
def test_the_refusal_names_the_pythons_that_the_lock_serves(
    accelerator: str, driver: str, lock: str, python: str, expected: str
) -> None:
    one = host("n1", driver, accelerator)
    with pytest.raises(PlanError) as refused:
        lock_of(one, [one], python)
    (problem,) = refused.value.problems
    assert problem.message == f"requirements/{lock}.txt does not serve Python {python}"
    assert (problem.expected, problem.found) == (expected, f"engine_python: {python}")
    assert "environment_requirements" in problem.fix
    assert lock_of(one, [one], "3.11") == lock.removeprefix("engine-")


@pytest.mark.parametrize("name", ["cuda", "cuda12"])
def test_a_lock_serves_the_pythons_that_wheels_were_found_for(name: str) -> None:
    lines = (REQUIREMENTS / f"engine-{name}.wheels").read_text().splitlines()
    assert {one for line in lines for one in line.split()[1].split(",")} == set(PYTHONS[name])


def test_the_lock_for_cpus_has_one_wheel_of_torch_which_is_for_its_one_python() -> None:
    text = (REQUIREMENTS / "engine-cpu.txt").read_text()
    _, _, rest = text.partition("\ntorch==2.13.0+cpu ")
    assert rest.partition("# via")[0].count("--hash=") == len(PYTHONS["cpu"]) == 1
