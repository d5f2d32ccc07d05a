"""A node of a job on this machine: the real agent, and a stand-in for srun that starts steps."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_ansible.slurm.channel import Node
from vllm_ansible.slurm.script import NODE, program

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
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Held]]:
    """Hold nodes of jobs, each with a mark and so many seconds to drain."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(SRUN)
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("STEPS", str(tmp_path / "steps"))
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(NODE.parents[1]))
    text = tmp_path / "agent"
    text.write_text(program())
    agents = []

    def made(number: int = 0, nodes: int = 1, drain_seconds: float = 0) -> Held:
        job = f"test-{uuid.uuid4().hex[:8]}"
        left = tmp_path / f"left{number or ''}"
        left.mkdir()
        mark = str(tmp_path / "draining-12-0")
        agent = subprocess.Popen(
            [sys.executable, "-I", "-", job, "2", str(left), mark, str(drain_seconds)],
            stdin=text.open(),
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SLURM_NODEID": str(number), "SLURM_JOB_NUM_NODES": str(nodes)},
        )
        agents.append(agent)
        assert agent.stdout is not None
        assert job in agent.stdout.readline()
        return Held(tmp_path, agent, job)

    yield made
    for agent in agents:
        agent.kill()
        agent.wait()


@pytest.fixture
def held(hold: Callable[..., Held]) -> Held:
    return hold()
