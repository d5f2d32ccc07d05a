"""The units that end a rented machine from within, as systemd and a shell read them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vllm_ansible.node.system import machine_end

AT = 1_795_632_080
needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)


def units(directory: Path) -> list[Path]:
    name = machine_end.name("r1")
    service, timer = directory / f"{name}.service", directory / f"{name}.timer"
    service.write_text(machine_end.service("r1", "EC2A-1"))
    timer.write_text(machine_end.timer("r1", AT))
    return [service, timer]


@needs_systemd
def test_systemd_takes_them(tmp_path: Path) -> None:
    command = ["systemd-analyze", "verify", "--man=no", *units(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True)
    # Of other units of this machine it may say anything.
    assert machine_end.name("r1") not in ran.stderr, ran.stderr


@needs_systemd
def test_the_timer_elapses_once_at_that_second() -> None:
    (line,) = [one for one in machine_end.timer("r1", AT).splitlines() if "OnCalendar" in one]
    expression = line.partition("=")[2]
    base = ["systemd-analyze", "calendar", "--iterations=2", f"--base-time=@{AT - 86400}"]
    ran = subprocess.run(
        [*base, expression],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TZ": "UTC"},
    )
    date = expression.removesuffix(" UTC")
    elapses = [one for one in ran.stdout.splitlines() if "elapse" in one or "Iteration" in one]
    assert len(elapses) == 1 and date in elapses[0]


def test_user_data_makes_the_same_units_that_the_module_compares_with(tmp_path: Path) -> None:
    bin_directory, made = tmp_path / "bin", tmp_path / "units"
    for one in (bin_directory, made):
        one.mkdir()
    identity = tmp_path / "product_uuid"
    identity.write_text("EC2A-1\n")
    systemctl = bin_directory / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    systemctl.chmod(0o755)
    script = machine_end.user_data("r1", AT)
    # The shell reads both from this machine, where neither may be changed.
    script = script.replace(f"cat {machine_end.IDENTITY}", f"cat {identity}")
    script = script.replace(machine_end.UNITS, str(made))
    (tmp_path / "user-data").write_text(script)
    environment = {"PATH": f"{bin_directory}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-eu", tmp_path / "user-data"], check=True, env=environment)
    (tmp_path / "module").mkdir()
    for wanted in units(tmp_path / "module"):
        assert (made / wanted.name).read_text() == wanted.read_text()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["daemon-reload", f"enable --now {machine_end.name('r1')}.timer"]


def test_a_machine_that_was_started_from_an_image_of_it_is_left_alone(tmp_path: Path) -> None:
    identity = tmp_path / "product_uuid"

    def status(known: str) -> int:
        lines = machine_end.service("r1", known).splitlines()
        (line,) = [one for one in lines if one.startswith("ExecCondition=")]
        command = line.partition("=")[2].replace(machine_end.IDENTITY, str(identity))
        return subprocess.run(["sh", "-c", command]).returncode

    # Where there is none, nobody can tell machines apart, and the limit counts.
    assert status("") == 0
    identity.write_text("ec2a-1\n")
    assert status("EC2A-1") == 0
    identity.write_text("ec2b-2\n")
    assert status("EC2A-1") == 1
