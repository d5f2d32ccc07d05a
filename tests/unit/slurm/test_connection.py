"""Ansible over the step of a job: the real plugin and agent, and a stand-in for srun."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from vllm_ansible.record.outcome import unreachable

from .conftest import Held

ROOT = Path(__file__).parents[3]
ANSIBLE = Path(sys.executable).with_name("ansible")


def ansible(held: Held, *words: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run one module on the node."""
    given = {
        "ansible_connection": "slurm_step",
        "ansible_host": "here",
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": str(held.directory / "remote"),
        "slurm_job_id": held.node.job,
        "slurm_python": sys.executable,
        "slurm_persist_seconds": 30,
        **variables,
    }
    inventory = held.directory / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"n1": {}, "n2": {}}, "vars": given}}))
    return subprocess.run(
        [str(ANSIBLE), "-i", str(inventory), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_modules_run_pipelined_over_one_step(held: Held) -> None:
    for _ in range(2):
        done = ansible(held, "all", "-m", "ansible.builtin.ping")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count('"ping": "pong"') == 2
    assert held.steps == 1
    assert not list((held.directory / "remote").glob("*"))


def test_files_pass_both_ways(held: Held) -> None:
    source, target = held.directory / "source", held.directory / "target"
    source.write_bytes(bytes(range(256)) * 4000)
    copied = ansible(held, "n1", "-m", "ansible.builtin.copy", "-a", f"src={source} dest={target}")
    assert copied.returncode == 0, copied.stdout + copied.stderr
    assert target.read_bytes() == source.read_bytes()
    back = held.directory / "back"
    words = f"src={target} dest={back} flat=true"
    fetched = ansible(held, "n1", "-m", "ansible.builtin.fetch", "-a", words)
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    assert back.read_bytes() == source.read_bytes()


def test_a_file_that_cannot_be_copied_is_no_node_that_is_out_of_reach() -> None:
    path = ROOT / "connection_plugins" / "slurm_step.py"
    spec = importlib.util.spec_from_file_location("slurm_step", path)
    assert spec and spec.loader
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    with pytest.raises(AnsibleError, match="Could not copy a to b: No space") as told:
        plugin.Connection._judge(None, 1, b"No space left on device\n", "a to b")
    assert not isinstance(told.value, AnsibleConnectionFailure)


def test_a_cluster_without_a_job_is_told_how_to_get_one(held: Held) -> None:
    done = ansible(held, "n1", "-m", "ansible.builtin.ping", slurm_job_id="", cluster_name="r1")
    assert done.returncode != 0
    assert "the cluster r1 has no running allocation" in done.stdout
    assert "playbooks/provision.yml" in done.stdout


@pytest.mark.parametrize("job", ["4711"])
def test_a_job_that_is_gone_is_named_with_srun_s_words(held: Held, job: str) -> None:
    done = ansible(held, "n1", "-m", "ansible.builtin.ping", slurm_job_id=job)
    assert "UNREACHABLE" in done.stdout
    assert f"in job {job} ended: no agent answers" in done.stdout


def test_a_person_is_told_what_became_of_the_nodes_and_not_of_keys() -> None:
    words = "The step to lab2 in job 12 ended: no agent answers"
    told = unreachable({"msg": words}, "r1-0", "lab2")
    assert told.signature == "slurm-step-ended"
    assert "squeue" in str(told.fix)
