"""What is left of a virtual machine that never answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.lab import vm
from vllm_ansible.lab.commands import LabError
from vllm_ansible.lab.machine_image import MachineImage
from vllm_ansible.lab.process import running, stop
from vllm_ansible.lab.vm import Machine


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """Start a program that is no machine in place of qemu, and keep its process."""
    if not shutil.which("ssh-keygen"):
        pytest.skip("the keys of a virtual machine need ssh-keygen")
    found: list[Any] = []
    start = vm.start

    def keep(*arguments: Any, **more: Any) -> Any:
        found.append(start(*arguments, **more))
        return found[-1]

    monkeypatch.setattr(vm, "start", keep)
    monkeypatch.setattr(vm, "require_root", lambda: None)
    monkeypatch.setattr(vm, "require_tools", lambda _: None)
    monkeypatch.setattr(vm, "ensure_machine_image", lambda _: MachineImage(tmp_path))
    yield found
    for process in found:
        stop(process)


def boots(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    command = lambda _image, state, *_: ["sh", "-c", program, "sh", f"{state}/console.log"]  # noqa: E731
    monkeypatch.setattr(vm, "machine_command", command)


def test_a_machine_that_never_answers_is_stopped_and_its_console_stays(
    started: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boots(monkeypatch, 'echo "Kernel panic" > "$1.new"; mv "$1.new" "$1"; exec sleep 600')
    with pytest.raises(LabError, match="did not answer SSH within 0 s; its console ends: Kernel"):
        Machine.create("silent", root=tmp_path, timeout=0)
    assert [running(process) for process in started] == [False]
    assert Machine("silent", tmp_path).console.read_text() == "Kernel panic\n"


def test_a_machine_that_ends_is_said_to_have_ended(
    started: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boots(monkeypatch, 'echo "no such accelerator" > "$1.new"; mv "$1.new" "$1"')
    with pytest.raises(LabError, match="ended within 60 s; its console ends: no such accelerator"):
        Machine.create("ended", root=tmp_path, timeout=60)
    assert len(started) == 1
