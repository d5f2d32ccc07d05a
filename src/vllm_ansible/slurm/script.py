"""The job that holds the nodes, and the command that asks for it."""

from __future__ import annotations

from pathlib import Path

from vllm_ansible.node.site_environment import SITE
from vllm_ansible.slurm.endpoint import FILE
from vllm_ansible.slurm.job import comment
from vllm_ansible.slurm.settings import Settings

AGENT = Path(__file__).resolve().parents[1] / "node" / "slurm_agent.py"
END_OF_PROGRAM = "VLLM_ANSIBLE_AGENT"
# From the last look at what is left to the last file removed.
SPARE_SECONDS = 2.0
# What a job takes over from whoever asks for it: no variables that mean something to programs.
EXPORTED = "HOME,USER,LOGNAME,PATH,LANG"


def asked(wanted: Settings) -> dict[str, str]:
    """Return the options of sbatch by name; empty ones are left to the site."""
    return {
        "job-name": wanted.job_name,
        "comment": comment(wanted.digest),
        "nodes": str(wanted.nodes),
        "ntasks-per-node": "1",
        "partition": wanted.partition,
        "account": wanted.account,
        "gpus-per-node": str(wanted.gpus_per_node or ""),
        "gres": wanted.gres,
        "constraint": wanted.constraint,
        "time": wanted.time,
        "reservation": wanted.reservation,
        "chdir": wanted.directory,
        "output": f"{wanted.directory}/slurm-%j.log",
        "open-mode": "append",
        "export": EXPORTED,
    }


def submit_command(wanted: Settings) -> list[str]:
    """Return the command that asks for the nodes; the script is its input."""
    given = [f"--{name}={value}" for name, value in asked(wanted).items() if value]
    # Last, so that they have the last word.
    return ["sbatch", "--parsable", "--requeue", *given, *wanted.extra_args]


def script(wanted: Settings, run_dir: str, kill_seconds: float) -> str:
    """Return the script: the site's own lines, then an agent on every node for as long as it runs.

    What the agent keeps on a node alone, at `run_dir`, goes with it, within `kill_seconds`, which
    Slurm lets pass between asking to end and killing.
    """
    end = max(kill_seconds - SPARE_SECONDS, 1.0)
    lines = [
        "#!/bin/bash -l",
        f"# Holds the nodes of the cluster {wanted.cluster}; vllm-ansible starts and stops what",
        "# runs on them. To end all of it: scancel this job.",
        "set -e",
        'before="$(env | LC_ALL=C sort)"',
        *wanted.setup,
        # Engines get what these lines have set, and nothing of what else a job happens to have.
        'after="$(env | LC_ALL=C sort)"',
        'new="$(LC_ALL=C comm -13 <(echo "$before") <(echo "$after"))"',
        f'export {SITE}="$(sed -n "s/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p" <<< "$new" | xargs)"',
        # What a step inherits would else be as little as this job did.
        "unset SLURM_EXPORT_ENV",
        # Nothing answers yet, and nothing will once this ends; a signal is for the step to handle.
        f"published='{wanted.directory}/{FILE}'",
        "trap 'rm -f \"$published\"' EXIT",
        "trap : TERM",
        'rm -f "$published"',
        "srun --job-name=vllm-agent --export=ALL --overlap \\",
        '  --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \\',
        "  --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --wait=0 \\",
        f"  {wanted.python} -I -u - \"$SLURM_JOB_ID\" {end:g} '{run_dir}' <<'{END_OF_PROGRAM}'",
        AGENT.read_text().rstrip("\n"),
        END_OF_PROGRAM,
    ]
    return "\n".join(lines) + "\n"
