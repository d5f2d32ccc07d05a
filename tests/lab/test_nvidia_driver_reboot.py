"""The role installs a driver and reboots into it, for real, in a virtual machine.

Packages are stand-ins, and what the bus and the module show is emulated at each boot: the module
that is loaded then is the one that is installed. The reboot is the machine's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from vllm_ansible.lab.commands import missing_tools, run
from vllm_ansible.lab.vm import TOOLS, Machine

from .driven import MANAGE, Driven, stand_ins

pytestmark = [pytest.mark.vm, pytest.mark.soak]

BOOT = """[Unit]
Description=Emulated devices
DefaultDependencies=no
After=local-fs.target
Before=multi-user.target ssh.service nvidia-fabricmanager.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/gpu_host.sh boot
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Driven]:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    with Machine.create("driver-test", root=tmp_path) as machine:

        def sh(line: str, check: bool = True) -> str:
            for _ in range(10):
                said = machine.run(["sh", "-c", line], check=False)
                # ssh's own status: a machine emulated on a busy one answers late.
                if said.returncode != 255:
                    break
            assert said.returncode == 0 or not check, said.stderr
            return said.stdout

        fingerprint, files = stand_ins(tmp_path / "made", sh("uname -r").strip())
        run([*machine.ssh(), "--", "tar --extract --directory /"], data=files)
        sh(f"cat > /etc/systemd/system/emulated-gpu.service <<'UNIT'\n{BOOT}UNIT")
        sh("systemctl daemon-reload; systemctl enable --now stand-in emulated-gpu")
        inventory = tmp_path / "vm.yml"
        host = {**machine.variables(), "sources_environment": {}}
        inventory.write_text(yaml.safe_dump({"gpu": {"hosts": {"vm": host}}}))
        yield Driven("vm", inventory, sh, fingerprint, tmp_path / "runs")


def test_a_host_is_rebooted_into_its_driver_by_the_run_after_one_that_died(host: Driven) -> None:
    boot = host.sh("cat /proc/sys/kernel/random/boot_id")
    assert host.missed() == ["driver-missing"]
    # As far as a run comes that dies before the reboot: everything is installed, nothing loaded.
    died = host.play(**MANAGE)
    assert died["failed"] and host.missed() == ["module-not-loaded"]
    assert host.sh("cat /proc/sys/kernel/random/boot_id") == boot

    resumed = host.play(nvidia_driver_mode="manage")
    assert not resumed["failed"], resumed["tasks"]
    assert resumed["tasks"]["nvidia_driver : Reboot the host"]["rebooted"]
    assert "nvidia_driver : Install packages" not in {
        name for name, result in resumed["tasks"].items() if result.get("changed")
    }
    assert host.sh("cat /proc/sys/kernel/random/boot_id") != boot
    assert host.sh("systemctl is-active nvidia-fabricmanager nvidia-dcgm") == "active\nactive\n"

    again = host.play(nvidia_driver_mode="manage")
    assert (again["failed"], again["changed"]) == (False, 0)
