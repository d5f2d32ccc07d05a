"""A model on shaped NFS: the rate is the line's, and reading takes as long as was foretold."""

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

# Some minutes, two of them to boot.
pytestmark = [pytest.mark.vm, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
PROGRAMS = [Path(__file__).with_name(name) for name in ("nfs_loading.py", "nfs_clients.py")]
# 20 Mbit/s, as the program shapes the server's side; what TCP and NFS add is not in it.
LINE = 2_500_000


def packed() -> bytes:
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(ROOT / "src", "src", filter=lambda one: None if "/lab" in one.name else one)
        for program in PROGRAMS:
            archive.add(program, program.name)
    return content.getvalue()


def test_loading_from_shaped_nfs_takes_as_long_as_was_foretold(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    with Machine.create("nfs-loading", root=tmp_path) as machine:
        subprocess.run([*machine.ssh(), "tar -x -C /root"], input=packed(), check=True)
        program = f"/root/{PROGRAMS[0].name}"
        ran = machine.run(["timeout", "900", "python3", program])
    found = json.loads(ran.stdout)
    print(found)
    assert (found["kind"], found["network"], found["way"]) == ("nfs4", True, "ahead")
    for name, one in found["ways"].items():
        assert one["rate"]["surely"], name
        assert 0.5 * LINE < one["rate"]["bytes_per_second"] < 1.1 * LINE, name
        assert one["took_seconds"] == pytest.approx(one["expected_seconds"], rel=0.3), name
