"""Configuration of the real Slurm that tests run on lab hosts: what a small site would write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PARTITION, SHORT = "gpu", "short"
GPUS = 4
CORES = 8
# What a partition allows at most; `short` is there to be asked for too much.
SHORT_MINUTES = 5
PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd")
# None of them can start before the lab has written their files.
SETUP = tuple(
    f"rm -f $1/etc/systemd/system/multi-user.target.wants/{name}.service"
    for name in ("munge", "slurmctld", "slurmd")
)
# Debian 12 has version 2 of control groups in its plugin, and lab hosts have version 1; without the
# plugin for processes, what a step leaves behind would live on, as it does at no real site.
CGROUP = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=yes
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=no
"""


def slurm_conf(
    controller: str, computes: Sequence[str], memory_mib: int, more: Mapping[str, str]
) -> str:
    """Return slurm.conf: one controller, its compute nodes, and two partitions over all of them."""
    settings = {
        "ClusterName": "lab",
        "SlurmctldHost": controller,
        "AuthType": "auth/munge",
        "SlurmUser": "slurm",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "ProctrackType": "proctrack/cgroup",
        "TaskPlugin": "task/none",
        # More cores than there are, so that several jobs share a node.
        "SlurmdParameters": "config_overrides",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerType": "sched/backfill",
        "GresTypes": "gpu",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "EnforcePartLimits": "ALL",
        "KillWait": "5",
        "CompleteWait": "0",
        "UnkillableStepTimeout": "60",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
        **more,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    for name in computes:
        lines.append(
            f"NodeName={name} CPUs={CORES} RealMemory={memory_mib} Gres=gpu:standin:{GPUS} "
            f"Feature=h100 State=UNKNOWN"
        )
    nodes = ",".join(computes)
    lines.append(f"PartitionName={PARTITION} Nodes={nodes} Default=YES MaxTime=INFINITE State=UP")
    lines.append(f"PartitionName={SHORT} Nodes={nodes} MaxTime={SHORT_MINUTES} State=UP")
    return "\n".join(lines) + "\n"


def gres_conf() -> str:
    """Return gres.conf: device files that stand for GPUs."""
    return f"Name=gpu Type=standin File=/dev/gpu[0-{GPUS - 1}]\n"
