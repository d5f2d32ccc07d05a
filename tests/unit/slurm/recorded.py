"""What Slurm 22.05.8 printed when it was asked for real, on the lab's hosts."""

from __future__ import annotations

RUNNING = (
    "12|RUNNING|None|1795363196|1795373996|1795363196|2|gpu|lab[2-3]|vllm-ansible 8d44b730e314\n"
)
WAITING = "14|PENDING|Resources|N/A|N/A|1795363266|2|gpu||vllm-ansible abc123\n"
HELD = "15|PENDING|JobHeldUser|N/A|N/A|1795363267|1|gpu||vllm-ansible abc123\n"
BEGIN_LATER = "9|PENDING|BeginTime|1795366119|NONE|1795362519|1|gpu||(null)\n"
CANCELLED = "14|CANCELLED|Resources|1795363268|1795363268|1795363266|2|gpu||vllm-ansible abc123\n"
COMPLETING = "1|COMPLETING|None|1795362491|1795362517|1795362491|2|gpu|lab[2-3]|(null)\n"
SHOWN = (
    "JobId=12 JobName=vllm-r1 UserId=ann(20001) GroupId=ann(20001) MCS_label=N/A "
    "Priority=4294901751 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None "
    "Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:01:03\n"
)
CONFIG = (
    "KillOnBadExit           = 0\n"
    "KillWait                = 5 sec\n"
    "LaunchParameters        = (null)\n"
)
# What was asked for, and what sbatch said on its errors; its status was 1 each time.
REFUSALS = {
    "-p nosuch": "sbatch: error: invalid partition specified: nosuch\n"
    "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
    "--gres=gpu:h100:4": "sbatch: error: Batch job submission failed: "
    "Requested node configuration is not available\n",
    "--gres=gpux:4": "sbatch: error: Invalid generic resource (gres) specification\n",
    "-p short -t 3-0": "sbatch: error: Batch job submission failed: "
    "Requested time limit is invalid (missing or exceeds some limit)\n",
    "-C a100": "sbatch: error: Batch job submission failed: Invalid feature specification\n",
    "-N 9": "sbatch: error: Batch job submission failed: "
    "More processors requested than permitted\n",
    "-N 9 --ntasks-per-node=1": "sbatch: error: Batch job submission failed: "
    "Node count specification invalid\n",
    "--reservation=x": "sbatch: error: Batch job submission failed: "
    "Requested reservation is invalid\n",
    "-t abc": "sbatch: error: Invalid --time specification\n",
    "--nosuch": "sbatch: unrecognized option '--nosuch'\n"
    'Try "sbatch --help" for more information\n',
    "--mem=9999G": "sbatch: error: Memory specification can not be satisfied\n"
    "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
    "-w lab9": "sbatch: error: Batch job submission failed: Invalid node name specified\n",
    "--test-only -p nosuch": "sbatch: error: invalid partition specified: nosuch\n"
    "allocation failure: Invalid partition name specified\n",
    # Without accounting no account is refused: these are the words of Slurm's own list of errors.
    "-A nobody": "sbatch: error: Batch job submission failed: "
    "Invalid account or account/partition combination specified\n",
    "--qos=hi": "sbatch: error: Batch job submission failed: Invalid qos specification\n",
}
