"""The image's Python as a program on the host: for what asks vLLM something, or makes weights."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from .command import OF_THE_HOST, STEERING, TEMPORARY, Inside, run_command

USER, NAME = "@user@", "@name@"
# Its user is who calls it; what it hands on is the names of the caller's environment.
SCRIPT = """\
#!/bin/sh
# Written by vllm-ansible: the Python of the engine's image, with the files of this cluster.
handed=
for name in $(awk 'BEGIN {{ for (name in ENVIRON) print name }}'); do
    case "$name" in
    *[!A-Za-z0-9_]* | PYTHON* | {own}) ;;
    *) handed="$handed --env=$name" ;;
    esac
done
exec {before} $handed {image} "$@"
"""


def python_script(
    image: Mapping[str, Any], accelerator: str, readable: Sequence[str], writable: Sequence[str]
) -> str:
    """Return the script: it reads and writes the given directories where they lie on the host."""
    inside = Inside(
        name=NAME,
        program="python3",
        environment={"HOME": TEMPORARY},
        readable=readable,
        writable=writable,
        accelerator=accelerator,
        interactive=True,
        # Root's files here belong to several users, as the cluster's do.
        capabilities=() if image["rootless"] else ("dac_override",),
    )
    command = shlex.join(run_command({**image, "user": USER}, inside)[:-1])
    command = command.replace(USER, '"$(id -u):$(id -g)"').replace(NAME, '"vllm-ansible-tool-$$"')
    own = " | ".join(sorted({*STEERING, *OF_THE_HOST}))
    return SCRIPT.format(own=own, before=command, image=shlex.quote(str(image["id"])))
