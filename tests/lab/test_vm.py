"""The virtual machine boots Debian's kernel, which has what the machine beneath may lack."""

import os
from pathlib import Path

import pytest

from vllm_ansible.lab.commands import missing_tools
from vllm_ansible.lab.machine_image import MODULES
from vllm_ansible.lab.vm import TOOLS, Machine

# Only tests of `make soak` use such a machine.
pytestmark = [pytest.mark.vm, pytest.mark.soak]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    return tmp_path


def test_the_machine_boots_its_own_kernel_with_the_modules_for_nfs_and_caches(root: Path) -> None:
    with Machine.create("test", root=root) as machine:
        assert "cloud" in machine.run(["uname", "-r"]).stdout
        machine.run(["modprobe", "--all", *MODULES])
        loaded = {line.split()[0] for line in machine.run(["lsmod"]).stdout.splitlines()}
        print(f"loaded: {sorted(loaded)}")
        assert set(MODULES) <= loaded
        assert machine.run(["systemctl", "--failed", "--plain", "--no-legend"]).stdout == ""

        first = machine.record()
        assert Machine.create("test", root=root).record() == first, "up again boots nothing"
        assert first is not None
    assert machine.record() is None
    assert not Path(f"/proc/{first.process.pid}/exe").exists()
    assert not machine.state.exists()
