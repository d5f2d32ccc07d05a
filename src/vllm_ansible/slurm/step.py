"""The command of a step that carries bytes to one node of a running job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vllm_ansible.node.slurm.agent import address

NODE_CODE = Path(__file__).resolve().parents[1] / "node"


READY_SECONDS = 60
# The variables that say where Slurm is, and nothing of what is wanted of it.
WHERE = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})


def without_wishes(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what Slurm's commands would take for options.

    A shell inside another job has its SLURM_NTASKS, and a user may have a SQUEUE_PARTITION
    or a SCANCEL_INTERACTIVE, which waits for an answer that nobody gives.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in WHERE or not name.startswith(("SLURM_", "SRUN_", "SQUEUE_", "SCANCEL_"))
    }


def relay_command(job: str, node: str, python: str) -> list[str]:
    """Return the command whose standard streams are those of the agent on a node.

    The step shares everything with the one that holds the node, and takes nothing for itself.
    """
    step = ["srun", f"--jobid={job}", f"--nodelist={node}", "--nodes=1", "--ntasks=1"]
    step += ["--job-name=vllm-relay", "--overlap", "--mem=0", "--gres=none", "--mpi=none"]
    # Else it waits without a word where the node is not ready for steps.
    step += ["--quiet", f"--immediate={READY_SECONDS}"]
    program = (NODE_CODE / "slurm/relay.py").read_text()
    return [*step, python, "-I", "-c", program, address(job).removeprefix("\0")]
