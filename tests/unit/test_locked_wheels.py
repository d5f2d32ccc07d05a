"""Hosts of both architectures find a wheel of every distribution that the lock of CUDA names."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements/engine-cuda.txt").read_text()
WHEELS = [line.split() for line in (ROOT / "requirements/engine-cuda.wheels").open()]
ARCHITECTURES = ["aarch64", "x86_64"]


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("locked", ROOT / "tools/locked_wheels.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def locked() -> dict[tuple[str, str], set[str]]:
    """Return the hashes of each distribution and version of the lock."""
    found = {}
    for entry in re.split(r"^(?=\S)", LOCK, flags=re.MULTILINE):
        pin = re.match(r"([A-Za-z0-9._-]+)(?:\[.*?\])?==(\S+)", entry)
        if pin:
            hashes = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
            found[(canonicalize_name(pin[1]), pin[2])] = hashes
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_distribution_has_a_wheel_whose_hash_is_locked(architecture: str) -> None:
    wheels = {}
    for _, file, digest in (one for one in WHEELS if one[0] == architecture):
        name, version, _, _ = parse_wheel_filename(file)
        wheels[(str(name), str(version))] = digest
    wanted = locked()
    assert len(wanted) > 200
    assert wheels.keys() == wanted.keys()
    assert [one for one, digest in wheels.items() if digest not in wanted[one]] == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_wheel_loads_on_the_oldest_system_that_is_supported(architecture: str) -> None:
    loadable = set(load_tool().tags(architecture))
    files = [file for one, file, _ in WHEELS if one == architecture]
    assert [file for file in files if loadable.isdisjoint(parse_wheel_filename(file)[3])] == []


def test_a_wheel_of_another_architecture_or_of_a_later_libc_loads_nowhere() -> None:
    loadable = set(load_tool().tags("aarch64"))
    for file in (
        "a-1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-1-py3-none-musllinux_1_2_aarch64.whl",
        "a-1-cp39-abi3-manylinux_2_35_aarch64.whl",
        "a-1-cp312-cp312-manylinux_2_28_aarch64.whl",
    ):
        assert loadable.isdisjoint(parse_wheel_filename(file)[3]), file
