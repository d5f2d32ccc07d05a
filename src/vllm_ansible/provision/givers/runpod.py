"""RunPod, which rents pods."""

from __future__ import annotations

from ..giver import Giver

GIVER = Giver(
    name="runpod",
    gives="pods at RunPod",
    module="runpod_provider",
    unfit="run the same command again with -e runpod_replace_cluster=true, which ends all pods of "
    "the cluster and rents others",
    restarts_bare=True,
    limits="take other runpod_instance_types, or ask RunPod's support: its API has no field for it",
    secret_files=("runpod_api_key_file",),
    secret_variables=("RUNPOD",),
)
