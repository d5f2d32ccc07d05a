"""Hosts of each architecture find a wheel of every distribution that the locks of CUDA name."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.utils import canonicalize_name, parse_wheel_filename

from vllm_ansible.bundle.wheels import Target, best
from vllm_ansible.bundle.wheels import locked as locked_lines

ROOT = Path(__file__).parents[2]
LOCKS = [("engine-cuda", "aarch64"), ("engine-cuda", "x86_64"), ("engine-cuda12", "x86_64")]
CASES = [(*case, python) for case in LOCKS for python in ("3.11", "3.12", "3.13")]


def wheels_of(lock: str, architecture: str, python: str) -> dict[str, str]:
    """Return file and digest of each wheel that such hosts install."""
    lines = [line.split() for line in (ROOT / f"requirements/{lock}.wheels").open()]
    return {
        file: digest
        for one, pythons, file, digest in lines
        if one == architecture and python in pythons.split(",")
    }


def locked(
    lock: str, architecture: str = "x86_64", python: str = "3.11"
) -> dict[tuple[str, str], frozenset[str]]:
    """Return the hashes of each distribution and version of a lock."""
    text = (ROOT / f"requirements/{lock}.txt").read_text()
    found = locked_lines(text, Target(python, architecture))
    return {(canonicalize_name(one.name), one.version): one.hashes for one in found}


@pytest.mark.parametrize(("lock", "architecture", "python"), CASES)
def test_every_distribution_has_a_wheel_whose_hash_is_locked(
    lock: str, architecture: str, python: str
) -> None:
    wheels = {}
    for file, digest in wheels_of(lock, architecture, python).items():
        name, version, _, _ = parse_wheel_filename(file)
        wheels[(str(name), str(version))] = digest
    wanted = locked(lock, architecture, python)
    assert len(wanted) > 180
    assert wheels.keys() == wanted.keys()
    assert [one for one, digest in wheels.items() if digest not in wanted[one]] == []


@pytest.mark.parametrize(("lock", "architecture", "python"), CASES)
def test_every_wheel_loads_on_the_oldest_system_that_is_supported(
    lock: str, architecture: str, python: str
) -> None:
    loadable = set(Target(python, architecture).tags())
    files = wheels_of(lock, architecture, python)
    assert [file for file in files if loadable.isdisjoint(parse_wheel_filename(file)[3])] == []


@pytest.mark.parametrize(("lock", "architecture", "python"), CASES)
def test_a_bundle_takes_the_very_wheels_that_hosts_install(
    lock: str, architecture: str, python: str
) -> None:
    target = Target(python, architecture)
    every = [line.split()[2] for line in (ROOT / f"requirements/{lock}.wheels").open()]
    text = (ROOT / f"requirements/{lock}.txt").read_text()
    taken = {best(one, every, target) for one in locked_lines(text, target)}
    assert taken == wheels_of(lock, architecture, python).keys()


def test_a_wheel_of_another_architecture_or_of_a_later_libc_loads_nowhere() -> None:
    loadable = set(Target("3.11", "aarch64").tags())
    for file in (
        "a-1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-1-py3-none-musllinux_1_2_aarch64.whl",
        "a-1-cp39-abi3-manylinux_2_35_aarch64.whl",
        "a-1-cp312-cp312-manylinux_2_28_aarch64.whl",
    ):
        assert loadable.isdisjoint(parse_wheel_filename(file)[3]), file


@pytest.mark.parametrize("lock", ["engine-cuda", "engine-cuda12"])
def test_what_turns_the_default_model_into_safetensors_is_locked(lock: str) -> None:
    names = {name for name, _ in locked(lock)}
    assert {"accelerate", "gguf"} <= names


def test_one_distribution_alone_brings_the_bindings_of_cuda() -> None:
    # cuda-python 12 carries cuda/bindings itself; from 13 on it requires cuda-bindings.
    versions = dict(locked("engine-cuda"))
    major = {name: version.split(".")[0] for name, version in versions}
    assert major["cuda-python"] == major["cuda-bindings"] == "13"
