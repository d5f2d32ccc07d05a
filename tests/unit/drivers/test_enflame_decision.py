"""What is wrong with Enflame's driver, what is refused, and what a person would type."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.drivers.enflame.decision import decide
from vllm_ansible.drivers.enflame.difference import Wanted
from vllm_ansible.drivers.enflame.differences import differences
from vllm_ansible.drivers.enflame.installer import arguments, known, version_of
from vllm_ansible.drivers.enflame.refusal import refusals
from vllm_ansible.problem import PlanError

KERNEL, VERSION = "5.15.0-105-generic", "1.7.2.14"
SUM = "ab" * 32
FILE = "/srv/TopsPlatform_1.4.6_deb_amd64.run"
OPTIONS = ("--no-auto-load", "--peermem", "-y")
HEALTHY: dict[str, Any] = {
    "present": True,
    "devices": [f"0000:1{number}:00.0" for number in range(8)],
    "kernel": KERNEL,
    "headers": True,
    "loaded": VERSION,
    "references": 1,
    "holders": ["enflame_peer_mem"],
    "peer_memory": True,
    "installed": VERSION,
    "peer_installed": VERSION,
    "other_kernels": [],
    "rdma": ["mlx5_0"],
    "tool_installed": True,
    "tool": VERSION,
    "answering": 8,
    "begun": {},
    "may_load": True,
    "users": [],
}
FRESH = {
    **{"loaded": "", "installed": "", "peer_installed": "", "tool": "", "answering": 0},
    **{"holders": [], "references": 0, "peer_memory": False},
}
OLD = {"loaded": "1.4.3.4", "installed": "1.4.3.4", "peer_installed": "1.4.3.4", "tool": "1.4.3.4"}


def look(**more: Any) -> dict[str, Any]:
    return {**HEALTHY, **more}


def wanted(**more: Any) -> Wanted:
    given = {"version": VERSION, "manage": True, "file": FILE, "sha256": SUM, "arguments": OPTIONS}
    return Wanted(**{**given, **more})


def found(**more: Any) -> list[str]:
    return [one.identifier for one in differences(look(**more), wanted())]


def refused(sha256: str | None = SUM, asked: Wanted | None = None, **more: Any) -> list[str]:
    asked = asked or wanted()
    seen = look(**more)
    problems = refusals("n1", seen, asked, differences(seen, asked), sha256)
    assert all(one.expected and one.found and one.where and one.fix for one in problems)
    return [one.sentence() for one in problems]


NOTHING = {"unload": [], "install": False, "load": [], "now": False}
INSTALL = {
    "unload": ["enflame_peer_mem", "enflame"],
    "install": True,
    "load": ["enflame", "enflame_peer_mem"],
    "now": True,
}


@pytest.mark.parametrize(
    ("more", "identifiers", "steps"),
    [
        ({}, [], NOTHING),
        (FRESH, ["driver-missing", "peer-memory"], {**INSTALL, "unload": []}),
        (OLD, ["older"], INSTALL),
        ({"begun": {"version": VERSION, "sha256": SUM}}, ["half-installed"], INSTALL),
        ({"tool_installed": False, "tool": "", "answering": 0}, ["half-installed"], INSTALL),
        ({"tool": "", "answering": 0}, ["silent"], NOTHING),
        (
            {**FRESH, "other_kernels": ["5.15.0-91-generic"]},
            ["other-kernel", "peer-memory"],
            {**INSTALL, "unload": []},
        ),
        (
            {**FRESH, "installed": VERSION, "peer_installed": VERSION},
            ["not-loaded", "peer-memory"],
            {**INSTALL, "unload": [], "install": False},
        ),
        ({"loaded": "1.4.3.4"}, ["other-loaded"], {**INSTALL, "install": False}),
        ({"answering": 7}, ["silent"], NOTHING),
        (
            {"peer_memory": False, "holders": [], "references": 0},
            ["peer-memory"],
            {**INSTALL, "unload": [], "install": False},
        ),
    ],
)
def test_each_state_is_told_and_mended_by_its_steps(
    more: dict[str, Any], identifiers: list[str], steps: dict[str, Any]
) -> None:
    decision = decide("n1", look(**more), wanted())
    assert decision["differences"] == identifiers
    assert decision["steps"] == steps
    for one in decision["measurements"]:
        assert one["ok"] is False and one["where"] == "n1"
        assert one["expected"] and one["found"] and one["fix"]


def test_a_host_without_a_device_is_passed_by() -> None:
    decision = decide("n1", {"present": False, "devices": []}, wanted())
    assert decision["differences"] == [] and decision["steps"]["now"] is False
    assert decision["commands"] == [] and "does not apply" in decision["summary"]


@pytest.mark.parametrize(
    ("declared", "answering", "missed"),
    [(0, 7, True), (8, 7, True), (7, 7, False), (7, 6, True), (9, 8, False), (7, 8, False)],
)
def test_a_site_may_go_on_without_a_card(declared: int, answering: int, missed: bool) -> None:
    decision = decide("n1", look(answering=answering), wanted(devices=declared))
    assert decision["differences"] == (["silent"] if missed else [])
    silent = f"{answering} device(s) answer and 1 on the bus not"
    assert (silent in decision["summary"]) is (answering == 7)
    if missed:
        (one,) = decision["measurements"]
        assert one["found"] == f"{answering} that efsmi lists, {8 - answering} silent"
        assert f"set accelerator_count: {answering} for n1" in one["fix"]


def test_what_no_run_mends_is_told_apart() -> None:
    both = look(answering=7, peer_memory=False, holders=[], references=0)
    decision = decide("n1", both, wanted())
    assert decision["differences"] == ["silent", "peer-memory"] and decision["steps"]["now"]
    assert decision["unmended"] == decision["measurements"][:1]
    assert decide("n1", look(**FRESH), wanted())["unmended"] == []


def test_a_newer_driver_and_one_of_any_version_are_left_alone() -> None:
    newer = dict.fromkeys(("loaded", "installed", "tool"), "1.10.25")
    assert found(**newer) == []
    assert differences(look(**OLD), Wanted()) == []


def test_what_a_person_would_type_is_what_the_run_does() -> None:
    commands = decide("n1", look(**OLD), wanted())["commands"]
    assert commands == [
        "rmmod enflame_peer_mem",
        "rmmod enflame",
        "bash ./TopsPlatform_1.4.6_deb_amd64.run --no-auto-load --peermem -y",
        "modprobe enflame",
        "modprobe enflame_peer_mem",
    ]


def test_what_a_person_would_type_ends_what_a_run_began() -> None:
    begun = look(begun={"version": VERSION, "sha256": SUM})
    decision = decide("n1", begun, wanted(manage=False))
    assert decision["commands"][-1] == "rm /var/lib/vllm-ansible/enflame_driver.json"
    assert "rm /var/lib/vllm-ansible" in decision["measurements"][0]["fix"]


def test_who_manages_without_root_is_not_told_to_manage() -> None:
    for manage in (True, False):
        (one,) = decide("n1", look(**OLD), wanted(manage=manage))["measurements"]
        assert "as root on n1: rmmod enflame_peer_mem" in one["fix"]
        assert ("enflame_driver_mode: manage" in one["fix"]) is not manage


def test_a_silent_device_is_reset_by_a_person_alone() -> None:
    (one,) = decide("n1", look(answering=7), wanted())["measurements"]
    assert "playbooks/reset_devices.yml --limit n1" in one["fix"]
    assert "manage" not in one["fix"]


def test_peer_memory_that_the_file_does_not_bring_is_not_installed_again_and_again() -> None:
    bare = wanted(arguments=("-y",), file="/srv/enflame-x86_64-gcc-1.7.2.14-20260302150833.run")
    seen = look(peer_memory=False, peer_installed="", holders=[], references=0)
    decision = decide("n1", seen, bare)
    assert decision["differences"] == ["peer-memory"] and not decision["steps"]["now"]
    assert "enflame_peer_mem-x86_64-gcc" in decision["measurements"][0]["fix"]
    assert decide("n1", seen, wanted(peer_memory=False))["differences"] == []
    # Without RDMA devices there is nothing to reach device memory.
    assert decide("n1", {**seen, "rdma": []}, bare)["differences"] == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"users": ["python3 (812)", "gcu-exporter (77)"]}, "python3 (812), gcu-exporter (77)"),
        ({"holders": ["enflame_peer_mem", "enflame_virt"]}, "module enflame_virt"),
        ({"references": 4}, "3 reference(s) held by a process not visible from here"),
        ({"headers": False}, f"linux-headers-{KERNEL}"),
        ({"may_load": False}, "may not load kernel modules"),
    ],
)
def test_what_must_not_be_done_is_refused_before_anything_is_touched(
    more: dict[str, Any], words: str
) -> None:
    (problem,) = refused(**{**OLD, **more})
    assert words in problem


def test_a_wrong_or_missing_file_is_refused_before_anything_is_touched() -> None:
    assert "is not the file whose checksum was given" in refused("cd" * 32, **OLD)[0]
    assert "is not on the controller" in refused(None, **OLD)[0]
    (problem,) = refused(None, Wanted(manage=True, version=VERSION), **OLD)
    assert "enflame_driver_file and enflame_driver_sha256" in problem
    assert refused(SUM.upper(), wanted(sha256=SUM.upper()), **OLD)[:0] == []


def test_nothing_is_refused_where_nothing_is_done() -> None:
    busy = {"users": ["python3 (812)"], "headers": False}
    assert refused(**busy) == []
    assert refused(asked=wanted(manage=False), **OLD, **busy) == []
    # Loading a module disturbs nobody and needs no file.
    unloaded = {**FRESH, "installed": VERSION, "peer_installed": VERSION}
    assert refused(None, **unloaded) == []


@pytest.mark.parametrize(
    ("name", "options", "version"),
    [
        ("TopsPlatform_1.4.6_deb_amd64.run", ["--no-auto-load", "--peermem", "-y"], ""),
        ("TopsRider_i3x_3.5.1_deb_amd64.run", ["--driver", "--no-auto-load", "-y"], ""),
        ("enflame-x86_64-gcc-1.7.2.2402-20260429134535.run", ["-y"], "1.7.2.2402"),
    ],
)
def test_an_installer_is_known_by_its_name(name: str, options: list[str], version: str) -> None:
    assert (arguments(name, True), version_of(name)) == (options, version)
    assert "--peermem" not in arguments(name, False)


def test_a_version_that_compares_with_nothing_is_refused() -> None:
    assert (known(VERSION), known("")) == (VERSION, "")
    for wrong in ("v1.7.2.14", "latest", "1.7.2.14-1"):
        with pytest.raises(PlanError, match="enflame_driver_version"):
            known(wrong)


def test_an_unknown_installer_is_asked_about() -> None:
    with pytest.raises(PlanError, match="enflame_driver_arguments"):
        arguments("NVIDIA-Linux-x86_64-580.run", True)
