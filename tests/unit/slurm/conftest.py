"""A node of a job on this machine: the real agent, and a stand-in for srun that starts steps."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_ansible.slurm.channel import Node

AGENT = Path(__file__).parents[3] / "src/vllm_ansible/node/slurm_agent.py"
# Whatever is asked for, the step runs on this machine; a prolog has printed before it.
SRUN = """\
#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
echo "$$" >> "$STEPS"
echo "welcome to the site"
exec "$@"
"""


class Held:
    """A node that is held, with the steps that were started on it."""

    def __init__(self, directory: Path, agent: subprocess.Popen[str], job: str) -> None:
        self.agent, self.directory = agent, directory
        self.node = Node(job, "here", sys.executable, 2)

    @property
    def steps(self) -> int:
        path = self.directory / "steps"
        return len(path.read_text().split()) if path.exists() else 0


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(AGENT.parents[2]))
    job = f"test-{uuid.uuid4().hex[:8]}"
    left = tmp_path / "left"
    left.mkdir()
    agent = subprocess.Popen(
        [sys.executable, "-I", "-", job, "2", str(left)],
        stdin=AGENT.open(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert agent.stdout is not None
    assert job in agent.stdout.readline()
    yield Held(tmp_path, agent, job)
    agent.kill()
    agent.wait()
