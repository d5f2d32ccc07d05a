"""Every supported system has a repository; others are refused in one sentence."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from vllm_ansible.drivers.repository import FINGERPRINTS, NAMES, repository
from vllm_ansible.inventory.site_host import ARCHITECTURES, SUPPORTED
from vllm_ansible.problem import PlanError


def host(distribution: str, version: str, architecture: str = "x86_64") -> dict[str, Any]:
    return {
        "name": "n1",
        "distribution": distribution,
        "distribution_version": version,
        "architecture": architecture,
    }


def test_every_supported_host_has_one() -> None:
    systems = [(name, version) for name, all_ in SUPPORTED.items() for version in all_]
    assert set(systems) == set(NAMES)
    for (name, version), architecture in itertools.product(systems, ARCHITECTURES):
        found = repository(host(name, version, architecture), "", "", "")
        assert found.url.startswith("https://developer.download.nvidia.com/compute/cuda/repos/")
        assert found.key_url.startswith(found.url)
        assert found.fingerprint.endswith(found.key_url.rpartition("/")[2][:8].upper())


@pytest.mark.parametrize(
    ("system", "url", "key"),
    [
        (("ubuntu", "22.04"), "ubuntu2204/x86_64", "3bf863cc"),
        (("ubuntu", "24.04", "aarch64"), "ubuntu2404/sbsa", "3bf863cc"),
        (("debian", "12"), "debian12/x86_64", "3bf863cc"),
        (("debian", "13.1"), "debian13/x86_64", "8793F200"),
        (("rocky", "9.5", "aarch64"), "rhel9/sbsa", "D42D0685"),
    ],
)
def test_the_vendors_names_are_used(system: tuple[str, ...], url: str, key: str) -> None:
    found = repository(host(*system), "", "", "")
    assert found.url.endswith(url)
    assert found.key_url == f"{found.url}/{key}.pub"
    assert len(found.fingerprint) == 40


def test_files_say_where_packages_and_key_are() -> None:
    apt = repository(host("ubuntu", "24.04", "aarch64"), "", "", "")
    assert f"URIs: {apt.url}/\nSuites: /\nArchitectures: arm64\n" in apt.content
    assert f"Signed-By: {apt.key_path}\n" in apt.content
    dnf = repository(host("rhel", "9.4"), "", "", "")
    assert f"baseurl={dnf.url}\n" in dnf.content
    assert f"gpgcheck=1\ngpgkey=file://{dnf.key_path}\n" in dnf.content


def test_a_mirror_takes_the_vendors_place_with_its_own_key() -> None:
    key = " ".join(["abcd"] * 10)
    found = repository(host("debian", "12"), "http://mirror/cuda/", "http://mirror/k.asc", key)
    assert (found.url, found.key_url) == ("http://mirror/cuda", "http://mirror/k.asc")
    assert found.fingerprint == "ABCD" * 10
    same_key = repository(host("debian", "12"), "http://mirror/cuda", "", "")
    assert same_key.key_url == "http://mirror/cuda/3bf863cc.pub"
    assert same_key.fingerprint == FINGERPRINTS["3bf863cc"]


@pytest.mark.parametrize(
    "system", [("ubuntu", "20.04"), ("fedora", "42"), ("debian", "12", "ppc64le")]
)
def test_other_systems_are_refused(system: tuple[str, ...]) -> None:
    with pytest.raises(PlanError) as refused:
        repository(host(*system), "", "", "")
    (problem,) = refused.value.problems
    assert problem.message.startswith(f"no driver packages are known for {system[0]}")
    assert "debian 12" in problem.expected and "nvidia_driver_mode: check" in problem.fix
