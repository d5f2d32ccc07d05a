"""docker or podman on this host: which, where it keeps images, what it may hand on."""

from __future__ import annotations

import json
import os
import pwd
import resource
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..accelerators.catalogue import PLATFORMS
from ..build_command import last_lines, text_of, watch
from ..failure import Failure

KINDS = ("podman", "docker")
INIT = ("catatonit", "podman/catatonit")
# A capability: may raise its own limits above what it was given.
SYS_RESOURCE = 24
MOST_PROCESSES = 32768


@dataclass(frozen=True)
class Tool:
    """One program that runs containers."""

    kind: str
    path: str
    environment: Mapping[str, str]

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Return status, output and errors of a short command."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            command = [self.path, *arguments]
            status = watch(command, self.environment, output, errors, lambda _: None)
            return status, text_of(output), text_of(errors)

    def image(self, name: str) -> Optional[dict[str, Any]]:
        """Return what the tool knows of an image: its id, layers and environment, or None."""
        status, text, _ = self.run("image", "inspect", name)
        if status != 0:
            return None
        told = json.loads(text)[0]
        pairs = (line.partition("=") for line in (told.get("Config") or {}).get("Env") or [])
        return {
            "id": str(told["Id"]).rpartition(":")[2],
            "layers": list((told.get("RootFS") or {}).get("Layers") or []),
            "environment": {name: value for name, _, value in pairs},
            "architecture": str(told.get("Architecture", "")),
        }

    def storage(self) -> str:
        """Return where images are kept; raise Failure where the tool does not work."""
        field = "{{.Store.GraphRoot}}" if self.kind == "podman" else "{{.DockerRootDir}}"
        status, text, errors = self.run("info", "--format", field)
        if status != 0 or not text.strip():
            raise Failure(
                f"{self.kind} does not work here: {last_lines(errors or text)}",
                expected=f"an answer of `{self.kind} info`",
                found=last_lines(errors or text) or f"exit status {status}",
                where=self.path,
                fix="start the daemon of docker and let this user use it"
                if self.kind == "docker"
                else "fix what it reports, or name the other tool in container_tool",
            )
        return text.strip()


def find(wanted: str, environment: Mapping[str, str]) -> Tool:
    """Return the wanted tool, or of `auto` the first there is; raise Failure without any."""
    kinds = KINDS if wanted == "auto" else (wanted,)
    for kind in kinds:
        path = shutil.which(kind, path=environment.get("PATH"))
        if path:
            return Tool(kind, path, environment)
    named = " and no ".join(kinds)
    raise Failure(
        f"the engine comes in an image, and this host has no {named}",
        expected=" or ".join(kinds),
        found="none on PATH",
        where=environment.get("PATH", ""),
        fix="install podman or docker, by hand or with system_container_runtime: manage, or "
        "correct container_tool",
    )


def settings(tool: Tool, user: str) -> dict[str, Any]:
    """Return how containers are run here; user is whom they run as, empty for who runs the tool."""
    entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())
    rootless = os.geteuid() != 0
    return {
        "tool": tool.path,
        "kind": tool.kind,
        "user": f"{entry.pw_uid}:{entry.pw_gid}",
        "rootless": rootless,
        "init": tool.kind == "docker" or has_init(),
        # Of docker the daemon sets them, which has root where this user has not.
        "limits": limits(may_raise_limits() or (tool.kind == "docker" and rootless)),
        "devices": device_files(),
    }


def has_init() -> bool:
    """Tell whether podman finds a first process that collects what others leave behind."""
    places = ("/usr/libexec", "/usr/lib", "/usr/local/libexec", "/usr/bin")
    return any(os.path.exists(os.path.join(place, name)) for place in places for name in INIT)


def may_raise_limits(status: str = "/proc/self/status") -> bool:
    """Tell whether what this process starts may have higher limits than it has itself."""
    with open(status, encoding="ascii", errors="replace") as lines:
        held = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) >> SYS_RESOURCE & 1)


def limits(raised: bool) -> list[str]:
    """Return the limits of containers: no core dumps, and as much locked memory as may be."""
    if raised:
        return ["core=0:0", "memlock=-1:-1", "nofile=65536:65536"]
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    fitting = [_within(files, 65536), _within(processes, MOST_PROCESSES)]
    return [
        "core=0:0",
        f"memlock={locked}:{locked}",
        f"nofile={fitting[0]}:{fitting[0]}",
        f"nproc={fitting[1]}:{fitting[1]}",
    ]


def _within(hard: int, wanted: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)


def device_files(directory: str = "/dev", names: Optional[Sequence[str]] = None) -> list[str]:
    """Return the device files that engines need beside what CDI or --gpus hands over."""
    found = os.listdir(directory) if names is None else names
    begin = tuple(name for one in PLATFORMS for name in one.in_containers)
    wanted = [name for name in found if name.startswith(begin) or name == "infiniband"]
    return [os.path.join(directory, name) for name in sorted(wanted)]
