"""The job's script, run by a real shell with a stand-in for srun."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.slurm.site_environment import SITE, site_environment
from vllm_ansible.slurm.script import program, script, submit_command
from vllm_ansible.slurm.settings import REQUEUE, Settings

# Prints what it was given: arguments, environment, input.
SRUN = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), sys.stdin.read()]))
"""


def ran(tmp_path: Path, *setup: str, **more: Any) -> subprocess.CompletedProcess[str]:
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    lines = (f"export PATH={srun.parent}:$PATH", *setup)
    wanted = Settings("r1", 2, str(tmp_path), setup=lines, **more)
    return subprocess.run(
        ["bash"],
        input=script(wanted, "/tmp/vllm-r1-7", 30),  # noqa: S108  a name, never made
        env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12", "SLURM_JOB_NUM_NODES": "2"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_agent_comes_over_standard_input_with_what_it_has_to_know(tmp_path: Path) -> None:
    arguments, environment, given = json.loads(ran(tmp_path).stdout)
    assert given == program()
    assert arguments[-9:] == [
        *("/usr/bin/python3", "-I", "-u", "-", "12", "28", "/tmp/vllm-r1-7"),  # noqa: S108
        *(f"{tmp_path}/r1/draining-12-0", "260"),
    ]
    assert "--ntasks=2" in arguments
    assert "SLURM_EXPORT_ENV" not in environment


def test_what_was_published_goes_when_a_job_starts_and_when_it_ends(tmp_path: Path) -> None:
    own = tmp_path / "r1"
    own.mkdir()
    (own / "endpoint.json").write_text("of the job before")
    # A site that counts its jobs anew may have given this number before.
    (own / "draining-12-0").mkdir()
    gone = f'test ! -e "{own}/endpoint.json" -a ! -e "{own}/draining-12-0"'
    seen = f'srun() {{ {gone} && echo now > "{own}/endpoint.json"; }}'
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


# What srun does once the job was told to drain: by then there is a mark and nothing published.
DRAINED = """srun() {{
  exec 1>&- 2>>"{own}/said"
  touch "{own}/endpoint.json"
  {signals}
  for look in $(seq 600); do test -e "{own}/draining-12-0" && break; sleep 0.1; done
  test ! -e "{own}/endpoint.json" && echo drained >> "{own}/said"
  return 3
}}"""


@pytest.mark.parametrize(
    ("changes", "signals", "said"),
    [
        ({}, "kill -USR1 $$", ["drained"]),
        ({"at_end": REQUEUE}, "kill -USR1 $$; kill -USR1 $$", ["drained", "requeue 12"]),
        # Who is asked to end is not put back.
        ({"at_end": REQUEUE}, "kill -USR1 $$; sleep 1; kill -TERM $$", ["drained"]),
    ],
)
def test_a_job_told_to_drain_marks_it_and_waits_for_its_agents(
    tmp_path: Path, changes: dict[str, Any], signals: str, said: list[str]
) -> None:
    own = tmp_path / "r1"
    own.mkdir()
    srun = DRAINED.format(own=own, signals=signals)
    scontrol = f'scontrol() {{ echo "$@" >> "{own}/said"; }}'
    done = ran(tmp_path, srun, scontrol, **changes)
    assert done.returncode == 3, done.stderr
    assert (own / "said").read_text().splitlines() == said
    assert sorted(path.name for path in own.iterdir()) == ["said"]


def test_a_site_that_puts_nothing_back_says_so_in_the_jobs_log(tmp_path: Path) -> None:
    own = tmp_path / "r1"
    own.mkdir()
    srun = DRAINED.format(own=own, signals="kill -USR1 $$")
    scontrol = 'scontrol() { echo "Access/permission denied" >&2; return 1; }'
    done = ran(tmp_path, srun, scontrol, at_end=REQUEUE)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-2:] == [
        "Access/permission denied",
        "this job is not put back, and ends",
    ]


@pytest.mark.parametrize("changes", [{}, {"at_end": REQUEUE}, {"drain_seconds": 0}])
def test_the_script_has_no_fault_that_shellcheck_knows(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not on this machine")
    text = script(Settings("r1", 2, "/scratch/me", **changes), "/run/me", 30)
    done = subprocess.run(
        ["shellcheck", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_slurm_tells_the_script_alone_when_to_drain() -> None:
    assert "--signal=B:USR1@300" in submit_command(Settings("r1", 2, "/scratch/me"))
    never = submit_command(Settings("r1", 2, "/scratch/me", drain_seconds=0))
    assert not [word for word in never if word.startswith("--signal")]
