"""The command line that runs a program inside the engine's image; pure, for both sides.

`image` is what the stage install learns of an image on a host: `tool` and its `kind` (docker or
podman), `id`, `user` (numbers), `rootless`, `init`, `limits`, `devices` (files of the accelerator
and of RDMA cards), `packages` (our own, on PYTHONPATH), `python_path` (the image's own),
`privileged`, `mounts`, `ipc` (host or private: whether memory is shared with other containers).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..accelerators.catalogue import host_platform

# These would steer docker or podman itself, so they are given to the container by value.
STEERING = (
    "DOCKER_CONFIG",
    "DOCKER_HOST",
    "HOME",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
)
# Of the host alone: a container has its own programs, and no manager of services to notify.
OF_THE_HOST = ("INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "PATH")
TEMPORARY = os.path.join(os.sep, "tmp")
TEMPORARY_GIB = 8


@dataclass(frozen=True)
class Inside:
    """What one container has beside its image.

    accelerators: numbers of an NVIDIA host's devices; None is all that it has. shared_memory_gib
    is a bound, not a reservation.
    """

    name: str
    program: str
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: Sequence[str] = ()
    writable: Sequence[str] = ()
    accelerator: str = "cpu"
    accelerators: Optional[Sequence[str]] = None
    shared_memory_gib: int = 2
    interactive: bool = False
    capabilities: Sequence[str] = ()


def run_command(image: Mapping[str, Any], inside: Inside) -> list[str]:
    """Return the command up to the program's own arguments; it stays in the foreground."""
    podman = image["kind"] == "podman"
    return [
        str(image["tool"]),
        "run",
        "--rm",
        f"--name={inside.name}",
        "--pull=never",
        "--network=host",
        "--log-driver=none",
        "--pids-limit=-1",
        "--read-only",
        f"--tmpfs={TEMPORARY}:rw,exec,nosuid,nodev,mode=1777,size={TEMPORARY_GIB}g",
        # That of the host has its own size.
        "--ipc=host" if image["ipc"] == "host" else f"--shm-size={inside.shared_memory_gib}g",
        *(f"--ulimit={limit}" for limit in image["limits"]),
        *(["--interactive"] if inside.interactive else []),
        *(["--init"] if image["init"] else []),
        *(["--sdnotify=ignore"] if podman else []),
        *(["--userns=keep-id"] if podman and image["rootless"] else []),
        f"--user={image['user']}",
        *_privileges(image, inside),
        *(f"--volume={path}:{path}:ro" for path in _once(inside.readable, image)),
        *(f"--volume={path}:{path}:rw" for path in inside.writable),
        *_environment(image, inside.environment),
        "--workdir=/",
        f"--entrypoint={inside.program}",
        str(image["id"]),
    ]


def cleanup_command(image: Mapping[str, Any], name: str) -> list[str]:
    """Return what removes a container of that name, running or not."""
    force = ["--force", "--ignore", "--time=0"] if image["kind"] == "podman" else ["--force"]
    return [str(image["tool"]), "rm", *force, name]


def another(command: Sequence[str], suffix: str, variables: Sequence[str]) -> list[str]:
    """Return the command of one more container like one that runs, whose name has a suffix.

    command is what `run_command` returned for that one; variables are handed on by name, too.
    """
    options = [f"{one}{suffix}" if one.startswith("--name=") else one for one in command[:-1]]
    return [*options, *(f"--env={name}" for name in variables), command[-1]]


def client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what docker or podman gets itself, to hand on by name."""
    return {name: value for name, value in environment.items() if name not in STEERING}


def _privileges(image: Mapping[str, Any], inside: Inside) -> list[str]:
    """Return the devices, and that nothing else is allowed."""
    if image["privileged"]:
        return ["--privileged", *_devices(image, inside)]
    return [
        "--cap-drop=all",
        *(f"--cap-add={name}" for name in inside.capabilities),
        "--security-opt=no-new-privileges",
        # Models and caches keep their labels: giving them the container's would relabel them all.
        "--security-opt=label=disable",
        *(f"--device={path}" for path in image["devices"]),
        *_devices(image, inside),
    ]


def _devices(image: Mapping[str, Any], inside: Inside) -> list[str]:
    kind = host_platform(inside.accelerator)
    return kind.container_options(image["kind"], list(inside.accelerators or ())) if kind else []


def _once(readable: Sequence[str], image: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*readable, str(image["packages"]), *image["mounts"]]))


def _environment(image: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """Return the options that hand the environment on; values of most stay out of sight."""
    paths = [str(image["packages"]), str(image["python_path"])]
    given = {**environment, "PYTHONPATH": ":".join(path for path in paths if path)}
    names = sorted(given.keys() - set(OF_THE_HOST))
    return [
        f"--env={name}={given[name]}" if name in (*STEERING, "PYTHONPATH") else f"--env={name}"
        for name in names
    ]
