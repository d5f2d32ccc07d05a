"""What an administrator is given is a whole script, and a shell accepts it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from vllm_ansible.drivers.decision import decide
from vllm_ansible.drivers.difference import Wanted
from vllm_ansible.drivers.mend import Mend, commands, together
from vllm_ansible.drivers.repository import repository

Look = Callable[..., dict[str, Any]]
BARE: dict[str, Any] = {
    "packages": [],
    "library": {"version": ""},
    "module": {"loaded": "", "flavour": "", "built": False, "headers": False},
}


def wanted(distribution: str, version: str) -> Wanted:
    host = {"name": "n1", "distribution": distribution, "distribution_version": version}
    source = repository({**host, "architecture": "x86_64"}, "", "", "")
    return Wanted(branch=580, manage=True, repository=source)


@pytest.mark.parametrize(
    ("system", "manager", "expected"),
    [
        (("ubuntu", "24.04"), "apt", "apt-get install --yes nvidia-driver-pinning-580"),
        (("rocky", "9"), "dnf", "dnf --assumeyes module enable nvidia-driver:580-open"),
    ],
)
def test_a_script_proves_the_key_before_anything_is_installed(
    look: Look, system: tuple[str, str], manager: str, expected: str
) -> None:
    want = wanted(*system)
    assert want.repository is not None
    text = decide("n1", look(**BARE, manager=manager), want, "/run/x.sh")["script"]
    lines = text.splitlines()
    assert lines[0] == "#!/bin/sh" and "set -eu" in lines
    proof = next(i for i, line in enumerate(lines) if want.repository.fingerprint in line)
    assert proof < lines.index(expected) < lines.index("systemctl reboot")
    assert want.repository.content in text
    checked = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_gate_points_at_the_script(look: Look) -> None:
    found = decide("n1", look(**BARE), wanted("debian", "12"), "/runs/1/administrator/driver-n1.sh")
    fixes = {one["fix"] for one in found["measurements"]}
    told = "an administrator of n1 runs /runs/1/administrator/driver-n1.sh there; then run again"
    assert fixes == {told}
    assert not any(one["ok"] for one in found["measurements"])


def test_a_check_names_the_exact_commands(look: Look) -> None:
    (one,) = decide("n1", look(module={"loaded": "580.126.20"}), Wanted(branch=580))["measurements"]
    assert one["fix"] == "set nvidia_driver_mode: manage, or as root on n1: systemctl reboot"
    assert one["what"].endswith("(nvml-mismatch)")


def test_every_step_has_its_commands_for_both_managers() -> None:
    everything = Mend(
        repair=True,
        pin=("p",),
        install=("a=1*",),
        reinstall=("b",),
        hold=("c",),
        enable=("d",),
        modules=("e",),
        start=("f",),
        reboot=True,
    )
    for manager in ("apt", "dnf"):
        lines = commands(everything, manager)
        assert lines[-1] == "systemctl reboot"
        for one in ("p", "'a=1*'", "b", "c", "d", "modprobe e", "enable --now f"):
            assert any(one in line for line in lines), (manager, one)


def test_steps_are_done_once() -> None:
    joined = together([Mend(install=("a", "b")), Mend(install=("b",), reboot=True)])
    assert (joined.install, joined.reboot, joined.now) == (("a", "b"), True, True)
    assert not Mend(reboot=True).now
