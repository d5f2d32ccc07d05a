"""Huge pages and the clock belong to a kernel: those of a virtual machine, which has its own."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.lab.commands import missing_tools
from vllm_ansible.lab.vm import TOOLS, Machine
from vllm_ansible.system.judge import Judgement, judge
from vllm_ansible.system.script import render
from vllm_ansible.system.wants import CONCERNS, Wants

pytestmark = [pytest.mark.vm, pytest.mark.soak]

SOURCE = Path(__file__).parents[2] / "src"
ADDRESS = "10.0.2.15"
# What the module system_info does, without Ansible.
LOOK = """
import json, shutil, subprocess, sys
sys.path.insert(0, "/root/src")
from vllm_ansible.node.system.firewall import Asked
from vllm_ansible.node.system.look import look
from vllm_ansible.node.system.tool import Tools

def run(argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stdout, done.stderr

limits = {"nofile": 1048576, "memlock": -1}
concerns = ["limits", "hugepages", "efa", "hosts_file", "time", "network"]
asked = Asked([], "eth0", 20000, "")
print(json.dumps(look(concerns, Tools(shutil.which, run), limits, asked, {})))
"""
WANT = Wants(
    name="vm",
    cluster="lab",
    root=True,
    systemd=True,
    accelerator="nvidia",
    accelerator_count=8,
    address=ADDRESS,
    interface="eth0",
    distribution="debian",
    peers={"other": "10.0.2.99"},
    first_port=20000,
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    root: Path = tmp_path_factory.mktemp("system")
    with Machine.create("system", root=root) as made:
        archive = root / "node.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(SOURCE / "vllm_ansible/__init__.py", "src/vllm_ansible/__init__.py")
            tar.add(SOURCE / "vllm_ansible/node", "src/vllm_ansible/node")
        with archive.open("rb") as stream:
            subprocess.run([*made.ssh(), "tar -xC /root"], stdin=stream, check=True, timeout=120)
        yield made


def look(machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(machine.run(["python3", "-c", LOOK]).stdout)
    # Of the machine only the devices are not had: see what they would ask for.
    found["devices"] = [{"name": "rdmap0", "driver": "efa", "ports": []}]
    return found


def judged(machine: Machine) -> dict[str, Judgement]:
    modes = {**dict.fromkeys(CONCERNS, "check"), "firewall": "skip", "container_runtime": "skip"}
    return judge(modes, look(machine), WANT)


def test_a_clock_that_nobody_keeps_is_found_on_a_kernel_of_its_own(machine: Machine) -> None:
    (one,) = judged(machine)["time"]["differences"]
    assert one["found"] == "not synchronised, and no time daemon runs"
    assert one["needed"]


def test_the_script_sets_what_only_a_kernel_of_its_own_lets_be_set(machine: Machine) -> None:
    before = judged(machine)
    (pages,) = before["hugepages"]["differences"]
    assert pages["found"] == "0"
    (own,) = before["hosts_file"]["differences"]
    assert own["found"] == "127.0.1.1", "as Debian's installer leaves it"
    assert machine.run(["sh", "-c", "ulimit -Hl"]).stdout != "unlimited\n"

    # Its packages would take minutes under emulation.
    asked = {name: before[name] for name in ("limits", "hugepages", "hosts_file")}
    script = render({"vm": asked}, {"vm": ADDRESS}, "administrator.sh")
    for _ in range(2):
        assert "done on vm" in machine.run(["sh", "-c", script]).stdout

    after = judged(machine)
    for name in asked:
        assert after[name]["differences"] == (), name
    limits = machine.run(["sh", "-c", "ulimit -Hl; ulimit -Sn; ulimit -Hn"]).stdout.split()
    assert limits == ["unlimited", "1048576", "1048576"]
    unit = ["systemd-run", "--wait", "--pipe", "-q", "sh", "-c", "ulimit -Sl; ulimit -Sn"]
    assert machine.run(unit).stdout.split() == ["unlimited", "1048576"]
    assert int(machine.run(["sysctl", "-n", "vm.nr_hugepages"]).stdout) >= 56
