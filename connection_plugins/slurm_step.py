"""Reach the nodes of a running job over `srun --overlap`, where a site allows no SSH."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_step
short_description: Run on nodes of a Slurm job over a step of srun
description:
  - Commands run in the job's own step, which lasts as long as the job; a step of C(srun --overlap)
    carries them, one for each node and shared by all tasks, as ControlPersist does for SSH.
  - Needs the agent that C(slurm_allocation) starts on every node.
author: The vllm-ansible authors
options:
  node:
    description: Name of the node, as Slurm has it.
    type: str
    vars:
      - name: inventory_hostname
      - name: ansible_host
  job:
    description: Number of the running job. Empty where the cluster has none.
    type: str
    default: ""
    vars:
      - name: slurm_job_id
  cluster:
    description: The cluster that the job belongs to.
    type: str
    default: main
    vars:
      - name: cluster_name
  python:
    description: Python on the nodes.
    type: str
    default: /usr/bin/python3
    vars:
      - name: slurm_python
  persist_seconds:
    description: How long a step is kept open after its last task.
    type: int
    default: 120
    vars:
      - name: slurm_persist_seconds
  pipelining:
    description: Whether modules are handed over as input instead of as files.
    type: bool
    default: true
    vars:
      - name: ansible_pipelining
"""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase

from vllm_ansible.slurm.channel import CHUNK_BYTES, Node, StepEnded, run


class Connection(ConnectionBase):
    """One node, reached anew by each worker over what they share."""

    transport = "slurm_step"
    has_pipelining = True
    has_tty = False

    def _connect(self) -> Connection:
        """Know the node; what carries to it is made when something is carried."""
        if not self.get_option("job"):
            raise AnsibleConnectionFailure(
                f"the cluster {self.get_option('cluster')} has no running allocation; "
                "playbooks/provision.yml asks Slurm for one"
            )
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run a command in the step that holds the node."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        return self._run(cmd, iter([in_data]) if in_data else iter(()))

    def put_file(self, in_path: str, out_path: str) -> None:
        """Write a file on the node, whole or not at all."""
        super().put_file(in_path, out_path)
        part = shlex.quote(f"{out_path}.part")
        status, _, errors = self._run(
            f"cat > {part} && mv {part} {shlex.quote(out_path)}", _read(in_path)
        )
        self._judge(status, errors, f"{in_path} to {out_path}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Read a file of the node."""
        super().fetch_file(in_path, out_path)
        with Path(out_path).open("wb") as target:
            status, _, errors = self._run(f"cat {shlex.quote(in_path)}", iter(()), target.write)
        self._judge(status, errors, f"{in_path} to {out_path}")

    def close(self) -> None:
        """Leave the step to others."""
        self._connected = False

    def reset(self) -> None:
        """Have nothing to reset: every command finds its own way."""
        self.close()

    def _run(
        self, command: str, data: Iterator[bytes], output: Any = None
    ) -> tuple[int, bytes, bytes]:
        self._connect()
        node = Node(
            str(self.get_option("job")),
            str(self.get_option("node")),
            str(self.get_option("python")),
            int(self.get_option("persist_seconds")),
        )
        try:
            return run(node, ["/bin/sh", "-c", command], data, output)
        except StepEnded as ended:
            raise AnsibleConnectionFailure(
                f"The step to {node.name} in job {node.job} ended: {ended}. "
                f"`squeue --jobs {node.job}` and `sacct --jobs {node.job}` say what became of it."
            ) from ended

    def _judge(self, status: int, errors: bytes, what: str) -> None:
        if status != 0:
            words = errors.decode(errors="replace").strip()
            # The node was reached: the task has failed, not the way to it.
            raise AnsibleError(f"Could not copy {what}: {words}")


def _read(path: str) -> Iterator[bytes]:
    """Return the content of a file of the controller piece by piece."""
    source = Path(path)
    if not source.exists():
        raise AnsibleFileNotFound(f"{path} is not on the controller")
    with source.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield data
