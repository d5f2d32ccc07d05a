"""What a pod starts with: our processes, where its disk still has them, then what its image starts.

RunPod starts none of ours by itself. Its API takes arguments of the container's entrypoint at
launch; the documented form of a start command that does something first is
`bash -c '... && /start.sh'`.
"""

from __future__ import annotations

from .runpod_settings import AUTO, OWN_IMAGES, START, Settings

# roles/provision/tasks/again.yml puts it there.
PROGRAM = "again/start"


def arguments(wanted: Settings) -> str:
    """Return the arguments of a pod's container; empty where those of its image stay."""
    start = wanted.start_command
    if start == AUTO:
        start = START if wanted.image.startswith(OWN_IMAGES) else ""
    if not start:
        return ""
    program = f"{wanted.cluster_dir or f'/opt/vllm-ansible/{wanted.cluster}'}/{PROGRAM}"
    return f"bash -c 'if [ -x {program} ]; then setsid {program} & fi; exec {start}'"
