"""The job's script, run by a real shell with a stand-in for srun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from vllm_ansible.node.site_environment import SITE, site_environment
from vllm_ansible.slurm.script import AGENT, script
from vllm_ansible.slurm.settings import Settings

# Prints what it was given: arguments, environment, input.
SRUN = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), sys.stdin.read()]))
"""


def ran(tmp_path: Path, *setup: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "bin" / "srun"
    program.parent.mkdir()
    program.write_text(SRUN)
    program.chmod(0o755)
    wanted = Settings("r1", 2, str(tmp_path), setup=(f"export PATH={program.parent}:$PATH", *setup))
    return subprocess.run(
        ["bash"],
        input=script(wanted, "/tmp/vllm-r1-7", 30),  # noqa: S108  a name, never made
        env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12", "SLURM_JOB_NUM_NODES": "2"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_agent_comes_over_standard_input_with_what_it_has_to_know(tmp_path: Path) -> None:
    arguments, environment, program = json.loads(ran(tmp_path).stdout)
    assert program == AGENT.read_text()
    assert arguments[-7:] == [
        *("/usr/bin/python3", "-I", "-u", "-", "12", "28", "/tmp/vllm-r1-7"),  # noqa: S108
    ]
    assert "--ntasks=2" in arguments
    assert "SLURM_EXPORT_ENV" not in environment


def test_what_was_published_goes_when_a_job_starts_and_when_it_ends(tmp_path: Path) -> None:
    own = tmp_path / "r1"
    own.mkdir()
    (own / "endpoint.json").write_text("of the job before")
    seen = f'srun() {{ test ! -e "{own}/endpoint.json"; echo now > "{own}/endpoint.json"; }}'
    assert ran(tmp_path, seen).returncode == 0
    assert not (own / "endpoint.json").exists()


def test_what_the_sites_lines_set_is_named(tmp_path: Path) -> None:
    lines = ("export CUDA_HOME=/opt/cuda", "unexported=1", "export BOTH='a\nb=c'")
    _, environment, _ = json.loads(ran(tmp_path, *lines).stdout)
    found = site_environment(environment)
    assert {"CUDA_HOME", "BOTH", "PATH"} <= set(found)
    assert found["BOTH"] == "a\nb=c"
    assert "unexported" not in environment[SITE]
    assert set(found) <= {"CUDA_HOME", "BOTH", "PATH", "b"}


def test_a_line_that_fails_ends_the_job(tmp_path: Path) -> None:
    done = ran(tmp_path, "false")
    assert done.returncode != 0
    assert done.stdout == ""
