#!/usr/bin/python
"""See that a job of Slurm holds the nodes; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_allocation
short_description: See that a job of Slurm holds the cluster's nodes
description:
  - Looks for the job of C(cluster_name) before it asks for one, and waits until it runs, with the
    queue's own reason, the place in the queue and the expected start on one line.
  - A request whose answer was lost is looked for in the queue before it is made again, by this run
    or by the next one. A refusal comes in Slurm's own words, with its likely cause.
  - Runs on the controller, which is a login node. In check mode Slurm is only asked whether it
    would take the job.
author: The vllm-ansible authors
options:
  state:
    description: Whether a job holds the nodes afterwards, or none does. V(look) only looks.
    type: str
    choices: [present, absent, look]
    default: present
  queue_hours:
    description: How long the queue may take. 0 waits for as long as it does.
    type: float
    default: 0
  everything:
    description: Whether what the nodes kept on the shared file system goes too, with V(absent).
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Ask Slurm for the nodes
  slurm_allocation:
  run_once: true
"""

RETURN = r"""
job:
  description: Number of the job.
  type: str
  returned: when it holds nodes
nodes:
  description: Its nodes, as Slurm names them.
  type: list
  elements: str
  returned: when it holds nodes
restarts:
  description: How often it was put back into the queue and started again.
  type: int
  returned: when it holds nodes
answers:
  description: Whether every host of the inventory has a node in the job that answers.
  type: bool
  returned: with V(look)
ends_at:
  description: When its time is over, in seconds since the epoch; 0 without a limit.
  type: int
  returned: when it holds nodes
drains_at:
  description: When its engines take no more requests, as C(ends_at).
  type: int
  returned: when it holds nodes
"""
