"""A controller is rebooted, for real, without and with a systemd of its user.

Without one the next command reports that nobody watches, and starts a watcher; with one the unit
that stands by watches before any command.

The controller is a virtual machine; the cloud that it rents from is emulated on this one, which it
reaches by a tunnel.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type
from tests.flows.clone import wait_until
from tests.unit.provision.watched import HOUR, Watched
from tests.unit.provision.world import EAST, GH200, H100, WEST, World
from vllm_ansible.lab.commands import missing_tools, run
from vllm_ansible.lab.vm import TOOLS, Machine

pytestmark = [pytest.mark.vm, pytest.mark.soak]
SOURCE = Path(__file__).parents[2] / "src"
# A machine emulated on a busy one takes its time.
SECONDS = 900.0

WATCH = """
import json, sys
from pathlib import Path
from vllm_ansible.provision import watcher
from vllm_ansible.provision.lambda_cluster import LambdaCluster
from vllm_ansible.provision.lambda_settings import settings
variables = json.loads(sys.argv[1])
file = Path("/root/state/r1/lambda-meter.json")
file.parent.mkdir(parents=True, exist_ok=True)
wanted = settings(variables, "here")
told = ""
if len(sys.argv) == 2:
    watcher.watch(file, variables, wanted)
else:
    # As the inventory plugin does first of all, in every command that touches machines.
    machines = LambdaCluster(wanted, file.parents[1]).machines()
    told = watcher.revive(file, machines, variables, wanted)
print(json.dumps({"told": told, "lives": watcher.lives(file)}))
"""
# What a run with another limit writes, without the watcher that it would start.
LIMIT = """
import json, sys
from pathlib import Path
from vllm_ansible.provision import files
from vllm_ansible.provision.lambda_settings import settings
variables = json.loads(sys.argv[1])
file = Path("/root/state/r1/lambda-meter.json")
files.write(file, json.dumps({**variables, **settings(variables, "here").pinned()}))
print(0)
"""
UNIT = """
import json
from pathlib import Path
from vllm_ansible.provision import watcher
file = Path("/root/state/r1/lambda-meter.json")
print(json.dumps([watcher.unit(file), watcher.after_reboot(file)]))
"""
# The image has no libpam-systemd, which sets this where it is installed.
LINGER = """
mkdir -p /etc/systemd/system/user@.service.d
printf '[Service]\\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\\n' \
    > /etc/systemd/system/user@.service.d/runtime.conf
systemctl daemon-reload
loginctl enable-linger root
"""
HOLD = """
import json, os, time
from vllm_ansible.node.cluster import lock
print(json.dumps({**lock.holder_of(os.getpid(), "ann"), "acquired": time.time()}))
"""
OVER = """
import json, os, sys
from vllm_ansible.node.cluster import lock
print(json.dumps(lock.over(json.loads(sys.argv[1]), lock.holder_of(os.getpid(), "bob"))))
"""


class Controller:
    """The machine from which a cluster is rented."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        archive = subprocess.run(
            ["tar", "--create", "--exclude=__pycache__", "--directory", SOURCE, "vllm_ansible"],
            capture_output=True,
            check=True,
        ).stdout
        run([*machine.ssh(), "--", "mkdir -p /root/src && tar -x -C /root/src"], data=archive)

    def python(self, program: str, *arguments: str) -> object:
        """Return what a program prints as JSON."""
        argv = ["env", "PYTHONPATH=/root/src", "python3", "-c", program, *arguments]
        return json.loads(self.machine.run(argv).stdout)

    def boot_id(self) -> str:
        """Return the identity of its boot; nothing while it does not answer."""
        said = self.machine.run(["cat", "/proc/sys/kernel/random/boot_id"], check=False, timeout=60)
        return said.stdout.strip() if said.returncode == 0 else ""

    def reboot(self) -> None:
        before = self.boot_id()
        assert before
        self.machine.run(["systemctl", "reboot"], check=False, timeout=60)
        wait_until(lambda: self.boot_id() not in ("", before), SECONDS, "a reboot")

    @contextmanager
    def tunnel(self, port: int) -> Iterator[None]:
        """Let it reach a port of this machine, as its own."""
        argv = [*self.machine.ssh(), "-N", "-o", "ExitOnForwardFailure=yes"]
        argv += ["-R", f"127.0.0.1:{port}:127.0.0.1:{port}"]
        with subprocess.Popen(argv) as process:
            try:
                look = f"import socket; socket.create_connection(('127.0.0.1', {port}), 30)"
                command = ["python3", "-c", look]
                wait_until(
                    lambda: self.machine.run(command, check=False).returncode == 0,
                    SECONDS,
                    "the tunnel",
                )
                yield
            finally:
                process.terminate()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    with Machine.create("reboot-test", root=tmp_path / "vm", timeout=SECONDS) as machine:
        yield Controller(machine)


@contextmanager
def rented(controller: Controller, directory: Path) -> Iterator[tuple[World, int, Any]]:
    """Give a controller two machines, an hour old; yield their world, its port and variables."""
    types = [
        Type(GH200, "GH200 (96 GB)", 149, left={EAST: 4, WEST: 4}),
        Type(H100, "H100 (80 GB)", 399, left={EAST: 4}),
    ]
    account = Account(types)
    account.add_ssh_key("mine", "ssh-ed25519 A")
    with Cloud(account, "secret", request_seconds=0, launch_seconds=0) as cloud:
        world = World(cloud, directory)
        watched = Watched(world)
        port = int(cloud.url.rpartition(":")[2].partition("/")[0])
        controller.machine.run(["sh", "-c", "umask 077; printf secret > /root/key"])

        def variables(hours: float) -> str:
            more = {"lambda_api_key_file": "/root/key", "max_hours": hours}
            return json.dumps({**watched.variables(), **more})

        yield world, port, variables


def test_after_a_reboot_the_next_command_watches_again_and_no_lock_needs_force(
    controller: Controller, tmp_path: Path
) -> None:
    with rented(controller, tmp_path) as (world, port, variables):
        with controller.tunnel(port):
            told = controller.python(WATCH, variables(9))
            assert told == {"told": "", "lives": True}
        holder = json.dumps(controller.python(HOLD))
        controller.reboot()
        # Whoever held the head's lock is over, whatever was rebooted in between.
        assert controller.python(OVER, holder) == [True, ""]
        assert world.slots == ["r1-0", "r1-1"]
        with controller.tunnel(port):
            # Whatever is over by now: an hour had passed when it began.
            found = controller.python(WATCH, variables(1), "again")
            assert isinstance(found, dict) and found["lives"] is not None
            assert found["told"].startswith("no process has watched max_hours and max_cost of r1")
            assert "a watcher was started now" in found["told"]
            ends = time.monotonic()
            wait_until(lambda: world.slots == [], SECONDS, "machines that are ended")
            print(f"ended {time.monotonic() - ends:.0f} s after the command; {HOUR:.0f} s rented")


def test_after_a_reboot_the_unit_of_a_user_who_lingers_watches_before_any_command(
    controller: Controller, tmp_path: Path
) -> None:
    machine = controller.machine
    machine.run(["sh", "-euc", LINGER])
    is_there = ["test", "-S", "/run/user/0/systemd/private"]
    wait_until(lambda: machine.run(is_there, check=False).returncode == 0, SECONDS, "a user's own")
    with rented(controller, tmp_path) as (world, port, variables):
        with controller.tunnel(port):
            assert controller.python(WATCH, variables(9)) == {"told": "", "lives": True}
        found = controller.python(UNIT)
        assert isinstance(found, list)
        unit, told = found
        assert told == f"After a reboot here, systemd starts it: {unit}"
        controller.reboot()
        ask = ["env", "XDG_RUNTIME_DIR=/run/user/0", "systemctl", "--user", "is-active", unit]

        def is_active() -> bool:
            return machine.run(ask, check=False).stdout.strip() == "active"

        wait_until(is_active, SECONDS, "the unit")
        assert world.slots == ["r1-0", "r1-1"]
        with controller.tunnel(port):
            # It looks as soon as the file is another one; no process is started for it.
            controller.python(LIMIT, variables(1))
            wait_until(lambda: world.slots == [], SECONDS, "machines that are ended")
            wait_until(lambda: not is_active(), SECONDS, "a unit that has ended with them")
