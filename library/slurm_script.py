#!/usr/bin/python
"""Write a script for sbatch; the work is done by the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_script
short_description: Write one file for sbatch that serves a cluster's engines without this project
description:
  - Plans the engines from what the inventory declares, as the stage C(validate) does, and writes
    what would be started as one script to C(slurm_script). Needs C(slurm_environment).
  - Runs on the controller and touches no host. The same inventory gives the same text, and a file
    that says something else is replaced only with C(slurm_script_replace). Run it once.
author: The vllm-ansible authors
options: {}
"""

EXAMPLES = r"""
- name: Write the script
  slurm_script:
  run_once: true
"""

RETURN = r"""
path:
  description: The file.
  type: str
  returned: success
evidence:
  description: One line for people, with the plan.
  type: dict
  returned: success
"""
