"""`playbooks/teardown.yml` on an allocation that has lost its nodes, as a user runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests import warm
from tests.flows.clone import Clone

from .recorded import RUNNING

BUSY = "srun: error: Unable to create step for job 12: Requested nodes are busy"


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where what stands for Slurm writes which jobs were cancelled."""
    programs, gone = tmp_path / "bin", tmp_path / "cancelled"
    programs.mkdir()
    (tmp_path / "listed").write_text(RUNNING)
    for name, line in {
        "squeue": f"test -e {gone} || cat {tmp_path / 'listed'}",
        "scontrol": "echo lab2; echo lab3",
        "scancel": f"echo $* >> {gone}",
        "srun": f"echo '{BUSY}' >&2; exit 1",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return gone


def inventory(tmp_path: Path) -> Path:
    """Write the inventory of an allocation of two nodes."""
    place = tmp_path / "inventory"
    (place / "group_vars").mkdir(parents=True)
    (place / "slurm.yml").write_text("plugin: slurm_nodes\n")
    given = {"cluster_name": "r1", "slurm_nodes": 2, "slurm_persist_seconds": 1}
    given["shared_dir"] = str(tmp_path / "shared")
    (place / "group_vars/all.yml").write_text(yaml.safe_dump(given))
    return place


def test_nodes_that_do_not_answer_keep_nobody_from_giving_all_back(
    lost: Path, tmp_path: Path
) -> None:
    clone = Clone(tmp_path / "clone")
    ran = clone.run(inventory(tmp_path), playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert "no answer from lab2, lab3" in ran.evidence("allocation")[0]["summary"]
    assert lost.read_text() == "12\n"


def test_a_load_host_that_fails_keeps_no_allocation_from_being_given_back(
    lost: Path, tmp_path: Path
) -> None:
    """Its directory is none of this project, so that nothing in it is removed."""
    clone, loader = Clone(tmp_path / "clone"), tmp_path / "loader"
    (loader / "secrets").mkdir(parents=True)
    place = inventory(tmp_path)
    here = {"ansible_connection": "local", "ansible_python_interpreter": warm.python()}
    content = {"load": {"hosts": {"loader": {**here, "cluster_dir": str(loader)}}}}
    (place / "load.yml").write_text(yaml.safe_dump(content))
    ran = clone.run(place, playbook="playbooks/teardown.yml")
    assert lost.exists(), ran.output
    assert lost.read_text() == "12\n"
    # Why, what is left, and by which command it goes.
    first, last = ran.of("failure")
    assert ran.stages == {"teardown": True, "release": True, "load": False}
    assert "is not a directory of this project" in first["msg"]
    assert (last["where"], last["found"]) == ("loader", first["msg"])
    assert f"--limit loader. Until then the key lies below {loader} there" in last["fix"]
