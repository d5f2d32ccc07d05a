"""Slurm, which lends the nodes of one job; `vllm_ansible/slurm` is what speaks to it."""

from __future__ import annotations

from ..giver import Giver

GIVER = Giver(
    name="slurm",
    gives="nodes of Slurm",
    unfit="see slurm-<job>.log in the cluster's directory under shared_dir; leave the node out "
    "with --exclude in slurm_extra_args, after playbooks/teardown.yml",
    replace="run playbooks/teardown.yml, leave the node out with --exclude in slurm_extra_args, "
    "and run site.yml",
    by_login_node=True,
)
