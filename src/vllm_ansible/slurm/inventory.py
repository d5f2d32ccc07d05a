"""The hosts of a cluster on Slurm: a name for each slot, with a node once the job runs.

Every slot is a host from the start, so that a layout is planned, and refused, before Slurm is
asked; and after a job was started again on other nodes, each slot finds its directory where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.plan.ports import BLOCK, EPHEMERAL_FIRST, INTERNAL_BASE
from vllm_ansible.problem import PlanError
from vllm_ansible.provision.fleet import NOWHERE
from vllm_ansible.slurm.draining import drains_at
from vllm_ansible.slurm.job import Job
from vllm_ansible.slurm.settings import Settings


@dataclass(frozen=True, slots=True)
class Host:
    """One entry of the inventory."""

    name: str
    groups: tuple[str, ...]
    variables: Mapping[str, Any]


def hosts(wanted: Settings, job: Job | None, nodes: Sequence[str]) -> list[Host]:
    """Return a host for each slot; the first is the head. `nodes` are those of a job that runs."""
    found = []
    for slot in range(wanted.nodes):
        variables: dict[str, Any] = {"ansible_host": NOWHERE}
        if job and slot < len(nodes):
            variables = {
                "ansible_host": nodes[slot],
                "provision_machine": {
                    "id": f"{job.id}-{job.starts_at}-{nodes[slot]}",
                    "type": job.partition,
                    "region": "slurm",
                    "status": job.state,
                    "ends_at": job.ends_at,
                    "drains_at": drains_at(job, wanted),
                },
            }
        role = "head" if slot == 0 else "worker"
        found.append(Host(f"{wanted.cluster}-{slot}", ("gpu", role), variables))
    return found


def shared(wanted: Settings, job: Job | None, run_dir: str, user: int) -> dict[str, Any]:
    """Return what all hosts have in common; an inventory's own group_vars say otherwise.

    user: number of the one whom the job belongs to.
    """
    variables: dict[str, Any] = {
        "ansible_connection": "slurm_step",
        "ansible_python_interpreter": wanted.python,
        # The home directory is on a file system that all nodes share, and is slower.
        "ansible_remote_tmp": f"{run_dir}/ansible",
        "provision_provider": "slurm",
        "privileges": "none",
        "slurm_job_id": job.id if job else "",
        # Of a slot, not of a node: what another node made for it is there after a restart.
        "cluster_dir": f"{wanted.directory}/{{{{ inventory_hostname }}}}",
        "environment_shared_dir": wanted.directory,
        "port_base": port_base(user, wanted.cluster),
        # Where a host's own would lie is on the same file system, and another path on each.
        "environment_shared_form": "tree",
    }
    count, model = wanted.gpus
    if count:
        variables["accelerator_count"] = count
    if known := _known(model) or _known(wanted.constraint):
        variables["accelerator_model"] = known
    return variables


def port_base(user: int, cluster: str) -> int:
    """Return the first port of a cluster on nodes that others use, too.

    The same for every job, so that an address that was passed on stays; two clusters that share a
    node have room for two engines each, and one chance in sixty to be told of a port that is taken.
    """
    number = int.from_bytes(hashlib.sha256(f"{user}/{cluster}".encode()).digest()[:8], "big")
    step = 2 * BLOCK
    return INTERNAL_BASE + step * (1 + number % ((EPHEMERAL_FIRST - INTERNAL_BASE) // step - 3))


def _known(word: str) -> str:
    """Return the accelerator that a site's own word means to the planner; empty where it is none.

    Sites name types and features as they like: a word that is not known is no mistake.
    """
    try:
        return accelerator(word).name if word else ""
    except PlanError:
        return ""
