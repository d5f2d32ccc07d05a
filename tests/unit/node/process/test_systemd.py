"""Units, as systemd itself reads them where its tools are there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.process.systemd import lowered, parse_show, quote, render

RECORD: dict[str, Any] = {
    "name": "e0-serve",
    "cluster": "demo",
    "argv": ["/bin/sh", "-c", "echo 50% $HOME ${HOME} \\ \"x\" 'y'\n;", ";", "", "ü"],
    "full_environment": {"A": '50% $HOME "q" \\ ;', "PATH": "/bin"},
    "directory": "/tmp",  # noqa: S108 a name, nothing is written
    "log": "/tmp/50% of it.log",  # noqa: S108 a name, nothing is written
    "limits": {"memlock": "infinity", "nofile": "65536"},
    "user": None,
    "stop_timeout_seconds": 20.0,
}


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("plain", '"plain"'),
        ("50%", '"50%%"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("two\nlines\there", '"two\\nlines\\there"'),
        ("", '""'),
        ("$HOME", '"$HOME"'),
    ],
)
def test_words_are_quoted_for_a_unit(value: str, quoted: str) -> None:
    assert quote(value) == quoted


def test_a_command_line_expands_nothing() -> None:
    lines = render(RECORD, "/record").splitlines()
    command = next(line for line in lines if line.startswith("ExecStart="))
    assert command.startswith('ExecStart=:"/bin/sh" "-c" "echo 50%% $HOME ${HOME}')
    assert "StandardOutput=append:/tmp/50%% of it.log" in lines
    assert "User=root" in lines


def test_a_cleanup_runs_before_the_start_and_after_every_end() -> None:
    lines = render({**RECORD, "cleanup": ["/bin/podman", "rm", "50%"]}, "/record").splitlines()
    command = '-:"/bin/podman" "rm" "50%%"'
    before = lines.index(f"ExecStartPre={command}")
    after = lines.index(f"ExecStopPost={command}")
    assert lines[before + 1].startswith("ExecStart=:")
    assert after == before + 2
    assert "ExecStopPost" not in render(RECORD, "/record")


def test_what_is_to_come_back_does_so_after_a_second_and_without_an_end() -> None:
    lines = render({**RECORD, "restart": True}, "/record").splitlines()
    assert lines[lines.index("Restart=on-failure") + 1] == "RestartSec=1"
    assert lines.index("StartLimitIntervalSec=0") < lines.index("[Service]")
    usual = render(RECORD, "/record")
    assert "Restart=no\n" in usual and "StartLimit" not in usual


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed on this machine")
    unit = tmp_path / "vllm-demo-e0-serve.service"
    unit.write_text(render({**RECORD, "restart": True}, "/record"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    # Without a running systemd it may complain about the machine, but not about this unit.
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def test_several_units_are_told_apart() -> None:
    text = "MainPID=1\nResult=success\n\nMainPID=2\nResult=exit-code\n"
    assert [one["MainPID"] for one in parse_show(text)] == ["1", "2"]


def test_a_clamped_limit_is_told() -> None:
    text = "Limit                     Soft Limit           Hard Limit           Units\n"
    text += "Max open files            65536                65536                files\n"
    text += "Max locked memory         8388608              8388608              bytes\n"
    assert lowered({"nofile": "65536", "memlock": "infinity"}, text) == [
        "limit memlock stays at 8388608, infinity was wanted: not permitted here"
    ]
    assert lowered({"nofile": "65537"}, text) != []
    assert lowered({"nofile": "65537"}, "") == []
