"""The job that holds the nodes, and the command that asks for it."""

from __future__ import annotations

import re
from pathlib import Path

from vllm_ansible.node.slurm.site_environment import SITE
from vllm_ansible.slurm.draining import MARK
from vllm_ansible.slurm.endpoint import FILE
from vllm_ansible.slurm.job import comment
from vllm_ansible.slurm.settings import REQUEUE, Settings

NODE = Path(__file__).resolve().parents[1] / "node"
PARTS = (NODE / "slurm/drain.py", NODE / "slurm/agent.py")
OWN_IMPORT = re.compile(r"^from (__future__|\.\w+) import .*\n", re.MULTILINE)
END_OF_PROGRAM = "VLLM_ANSIBLE_AGENT"
# From the last look at what is left to the last file removed.
SPARE_SECONDS = 2.0
# What a job takes over from whoever asks for it: no variables that mean something to programs.
EXPORTED = "HOME,USER,LOGNAME,PATH,LANG"
# A site may forbid it; Slurm then says so itself.
PUT_BACK = 'scontrol requeue "$SLURM_JOB_ID" || echo "this job is not put back, and ends" >&2'


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
        # To the script alone: what a step is sent, every process in it gets.
        "signal": f"B:USR1@{wanted.drain_seconds}" if wanted.drain_seconds else "",
    }


def submit_command(wanted: Settings) -> list[str]:
    """Return the command that asks for the nodes; the script is its input."""
    given = [f"--{name}={value}" for name, value in asked(wanted).items() if value]
    # Last, so that they have the last word.
    return ["sbatch", "--parsable", "--requeue", *given, *wanted.extra_args]


def program() -> str:
    """Return the agent as one text: over standard input it cannot import its own parts."""
    parts = [OWN_IMPORT.sub("", part.read_text()) for part in PARTS]
    return "from __future__ import annotations\n" + "".join(parts)


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
        *_signals(wanted),
        'before="$(env | LC_ALL=C sort)"',
        *wanted.setup,
        # Engines get what these lines have set, and nothing of what else a job happens to have.
        'after="$(env | LC_ALL=C sort)"',
        'new="$(LC_ALL=C comm -13 <(echo "$before") <(echo "$after"))"',
        f'{SITE}="$(sed -n "s/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p" <<< "$new" | xargs)"',
        f"export {SITE}",
        # What a step inherits would else be as little as this job did.
        "unset SLURM_EXPORT_ENV",
        # For the steps to handle; who is asked to end is not put back.
        f"trap 'woken=yes{' drained=no' if wanted.drain_seconds else ''}' TERM",
        # In the background, for a signal is heeded at once only where the shell itself waits.
        # How it ended is kept in a file: of who ends while a signal is handled bash's wait says -1.
        "{",
        "status=0",
        "srun --job-name=vllm-agent --export=ALL --overlap \\",
        '  --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \\',
        "  --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --wait=0 \\",
        f"  {wanted.python} -I -u - \"$SLURM_JOB_ID\" {end:g} '{run_dir}' \\",
        f"  \"$mark\" {wanted.serving_seconds} <<'{END_OF_PROGRAM}' || status=$?",
        program().rstrip("\n"),
        END_OF_PROGRAM,
        'echo "$status" > "$ended"',
        "} &",
        "agents=$!",
        "while true; do",
        "  woken=''",
        '  wait "$agents" || true',
        '  test -n "$woken" || break',
        "done",
        *_after(wanted),
        'status="$(cat "$ended")"',
        'exit "${status:-1}"',
    ]
    return "\n".join(lines) + "\n"


def _signals(wanted: Settings) -> list[str]:
    """Return what the job does when it is to drain, and when it ends."""
    lines = [
        # Nothing answers yet, and nothing will once this ends.
        f"published='{wanted.directory}/{FILE}'",
        # Of this start: a job that is put back keeps its number.
        f"mark='{wanted.directory}/{MARK}-'\"$SLURM_JOB_ID-${{SLURM_RESTART_COUNT:-0}}\"",
        'ended="$(mktemp)"',
        'trap \'rm -rf "$published" "$mark" "$ended"\' EXIT',
        'rm -rf "$published" "$mark"',
    ]
    if wanted.drain_seconds:
        # The agents see the mark.
        made = 'mkdir -p "$mark" || echo "nothing can be drained" >&2'
        gone = 'rm -f "$published" || true'
        lines.append("drained=no")
        lines.append(f"trap 'woken=yes drained=yes; {gone}; {made}' USR1")
    return lines


def _after(wanted: Settings) -> list[str]:
    """Return what the job does once its agents have ended."""
    if not wanted.drain_seconds:
        return []
    back = [f"  {PUT_BACK}"] if wanted.at_end == REQUEUE else []
    return ['if test "$drained" = yes; then', '  echo "drained"', *back, "fi"]
