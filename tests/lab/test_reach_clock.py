"""A clock that is really wrong is measured: that of a virtual machine, which has its own."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from vllm_ansible.lab.commands import missing_tools
from vllm_ansible.lab.vm import TOOLS, Machine
from vllm_ansible.node.reach import wire
from vllm_ansible.node.reach.exchange import NoAnswer, Session, measure, meet
from vllm_ansible.verify.reach import clocks

pytestmark = [pytest.mark.vm, pytest.mark.soak]

SOURCE = Path(__file__).parents[2] / "src"
PORT = 20000
ANSWER = f"""
import sys
sys.path.insert(0, "/root/src")
from vllm_ansible.node.reach import responder, wire
key = wire.key_from("/root/ray_token")
responder.Responder(key, "127.0.0.1", [{PORT}]).serve(120)
"""
HOUR = 3600.0


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    with Machine.create("reach", root=tmp_path) as made:
        yield made


def send(machine: Machine, directory: Path) -> None:
    """Give the machine the node code, a key and the program."""
    with tarfile.open(directory / "node.tar", "w") as archive:
        archive.add(SOURCE / "vllm_ansible" / "node", "src/vllm_ansible/node")
        for name in ("ray_token", "answer.py"):
            archive.add(directory / name, name)
    with (directory / "node.tar").open("rb") as stream:
        subprocess.run([*machine.ssh(), "tar -xC /root"], stdin=stream, check=True, timeout=120)


def reach(key: bytes, port: int, seconds: float = 60) -> Session:
    """Return a session as soon as the machine's responder answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return meet(key, "127.0.0.1", port, 10)
        except NoAnswer:
            assert time.monotonic() < deadline, "the machine's responder does not answer"
            time.sleep(0.5)


def test_a_clock_that_was_set_back_is_found_over_a_real_connection(
    machine: Machine, tmp_path: Path
) -> None:
    secret = tmp_path / "ray_token"
    secret.write_text("a key of this test")
    (tmp_path / "answer.py").write_text(ANSWER)
    send(machine, tmp_path)
    machine.run(["systemctl", "stop", "systemd-timesyncd"], check=False)
    machine.run(["date", "-s", "-1 hour"])
    port = free_port()
    *ssh, target = machine.ssh()
    # With a terminal, the responder ends when the connection does.
    forward = ["-tt", "-L", f"127.0.0.1:{port}:127.0.0.1:{PORT}"]
    command = [*ssh, *forward, target, "python3", "/root/answer.py"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            session = reach(wire.key_from(str(secret)), port)
            found = measure(session)
            session.connection.close()
        finally:
            process.terminate()
    print(found)
    offset, uncertainty = found["clock_offset_seconds"], found["clock_uncertainty_seconds"]
    # Both clocks run on while the date is set and read: a few seconds, on a busy machine.
    assert -HOUR - 5 < offset < -HOUR + 30
    assert uncertainty < 1
    verdict = clocks.judge({("here", "machine"): found}, ("here", "machine"))
    assert verdict.wrong and not verdict.majority
