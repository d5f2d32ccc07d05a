from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.host.readiness import GIB, alike, lacks, measurements, summary


def host(name: str = "n1", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "accelerator": "nvidia",
        "accelerator_count": 8,
        "accelerators": {"driver_version": "570.1"},
        "address": f"10.0.0.{name[1:]}",
        "architecture": "x86_64",
        "cluster_dir": "/opt/vllm-ansible/c",
        "disk_free_bytes": 100 * GIB,
        "has_venv": True,
        "has_compiler": True,
        "has_python_headers": True,
        "missing_libraries": [],
        **more,
    }


def cpu(**more: Any) -> dict[str, Any]:
    return host(accelerator="cpu", accelerators={"driver_version": ""}, **more)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (host(), []),
        (host(has_venv=False, has_compiler=False), ["Python's venv", "a C compiler"]),
        (host(has_python_headers=False), ["Python's headers"]),
        # libnuma is linked by vLLM's CPU library alone; there, nothing is compiled at run time.
        (host(missing_libraries=["numa"]), []),
        (cpu(missing_libraries=["numa"]), ["libnuma"]),
        (cpu(has_compiler=False, has_python_headers=False, missing_libraries=["rdma"]), []),
        (cpu(has_venv=False), ["Python's venv"]),
    ],
)
def test_a_host_lacks_what_its_accelerator_needs(given: Any, missing: list[str]) -> None:
    assert lacks(given) == missing


def judged(given: dict[str, Any], missing: tuple[str, ...] = (), mode: str = "check") -> Any:
    return measurements(given, missing, 8, mode, "apt-get install -y gcc")


def failed(given: dict[str, Any], *missing: str, mode: str = "check") -> list[str]:
    return [one["what"] for one in judged(given, missing, mode) if not one["ok"]]


def test_a_ready_host_passes_every_measurement() -> None:
    assert failed(host()) == []


@pytest.mark.parametrize(("mode", "fails"), [("check", True), ("manage", True), ("skip", False)])
def test_missing_packages_fail_unless_they_are_left_alone(mode: str, fails: bool) -> None:
    assert failed(host(), "a C compiler", mode=mode) == ["the system's packages"] * fails
    (one, *_) = judged(host(), ("a C compiler", "libnuma"), mode)
    assert one["found"] == "missing: a C compiler, libnuma"
    assert one["fix"] == "as root on n1: apt-get install -y gcc"


def test_cards_whose_driver_does_not_answer_fail() -> None:
    silent = host(accelerator_count=0, accelerators={"driver_version": ""})
    assert failed(silent) == ["the accelerators"]
    one = judged(silent)[1]
    assert one["expected"] == "at least one nvidia device that answers its driver"
    assert one["found"] == "0 devices, driver not loaded"


def test_a_full_disk_fails_and_one_at_the_limit_does_not() -> None:
    assert failed(host(disk_free_bytes=8 * GIB)) == []
    full = host(disk_free_bytes=8 * GIB - 1)
    assert failed(full) == ["free disk space"]
    one = judged(full)[2]
    assert (one["where"], one["found"]) == ("n1:/opt/vllm-ansible/c", "8.0 GiB free")


@pytest.mark.parametrize("given", [host(), cpu()])
def test_every_measurement_says_what_a_gate_needs(given: dict[str, Any]) -> None:
    for one in [*judged(given), *alike([given])]:
        assert one.keys() == {"what", "ok", "expected", "found", "where", "fix"}
        assert all(one[key] for key in one.keys() - {"ok"})


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        ({"accelerator": "cpu"}, "the kind of accelerator being equal"),
        ({"architecture": "aarch64"}, "the architecture being equal"),
        ({"accelerators": {"driver_version": "550.9"}}, "the driver version being equal"),
    ],
)
def test_the_odd_one_out_is_named(odd: dict[str, Any], what: str) -> None:
    assert all(one["ok"] for one in alike([host("n1"), host("n2"), host("n3")]))
    (one,) = (one for one in alike([host("n1"), host("n2", **odd), host("n3")]) if not one["ok"])
    assert (one["what"], one["where"]) == (what, "n2")
    assert "on n1, n3; " in one["found"] and one["found"].endswith(" on n2")


def test_hosts_without_a_driver_are_alike() -> None:
    one = alike([cpu(), cpu(name="n2")])[2]
    assert one["ok"] and one["expected"] == "none everywhere"


def test_hosts_are_told_in_one_line() -> None:
    assert summary([host()]) == "1 host, 8 x nvidia, data plane 10.0.0.1"
    many = [host(f"n{number}") for number in range(1, 7)]
    assert summary(many) == (
        "6 hosts, 48 x nvidia, data plane 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4 and 2 more"
    )
