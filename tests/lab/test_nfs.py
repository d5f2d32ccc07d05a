"""A directory of models on NFS: two clients agree on it, take turns, and see what is there."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from vllm_ansible.lab.commands import missing_tools
from vllm_ansible.lab.vm import TOOLS, Machine

# Three minutes, two of them to boot.
pytestmark = [pytest.mark.vm, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("nfs_clients.py")


def packed() -> bytes:
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(ROOT / "src", "src", filter=lambda one: None if "/lab" in one.name else one)
        archive.add(PROGRAM, PROGRAM.name)
    return content.getvalue()


def test_hosts_that_share_models_over_nfs_agree_and_take_turns(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    with Machine.create("nfs", root=tmp_path) as machine:
        subprocess.run([*machine.ssh(), "tar -x -C /root"], input=packed(), check=True)
        ran = machine.run(["timeout", "300", "python3", f"/root/{PROGRAM.name}"])
    found = json.loads(ran.stdout)
    print(found)
    assert found["marks"] == {"different": 1, "left": [".directory"]}
    assert found["locks"]["seen"], "a lock of one client has to be known to the other"
    assert found["locks"]["steps"] == ["waits", "first is done", "tends"]
    assert not found["locks"]["after"]
    assert max(found["verified"]) < 5
    assert "root_squash" in found["refusal"]
