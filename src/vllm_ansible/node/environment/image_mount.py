"""Mount a packed image of an environment: by the kernel with root, else by squashfuse."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..build_command import BuildError, last_lines, run
from ..nfs.mounts import mounted_at
from ..system.storage import mounts

KINDS = ("squashfs", "fuse.squashfuse", "fuse.squashfuse_ll")


def is_mounted(place: Path) -> bool:
    """Tell whether something is mounted exactly there, without touching it: it may not answer."""
    return mounted_at(_real(place)) is not None


def mount(image: Path, place: Path, environment: Mapping[str, str]) -> None:
    """Mount an image read-only at a directory, which is made; raise BuildError where nothing can.

    Nothing mounts it again after the host was started anew but the next run.
    """
    place.mkdir(exist_ok=True)
    complaints = []
    for command in _commands(str(image), str(place)):
        done = subprocess.run(  # noqa: S603  argv built here, no shell
            command, env=dict(environment), cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
        complaints.append(f"{command[0]}: {last_lines(done.stderr)}")
    raise BuildError(
        "the image of the environment cannot be mounted",
        expected="a kernel that mounts squashfs, with root, or squashfuse",
        found="; ".join(complaints) or "no root, and no squashfuse on this host",
        where=str(image),
        fix="install squashfuse here, or say environment_shared_form: copy",
    )


def unmount(place: Path, environment: Mapping[str, str]) -> None:
    """Unmount what is mounted there, if anything is; raise BuildError while it is used."""
    while is_mounted(place):
        helper = next(filter(shutil.which, ("fusermount3", "fusermount")), "fusermount3")
        command = ["umount", str(place)] if os.geteuid() == 0 else [helper, "-u", str(place)]
        try:
            run(command, environment)
        except BuildError as error:
            raise BuildError(
                "the mounted environment cannot be unmounted: it is in use, or another user's",
                expected="a mount of this user, and nothing that runs from it",
                found=error.details["found"],
                where=str(place),
                command=" ".join(command),
                fix="stop what runs from it (playbooks/stop.yml), then run again",
            ) from error


def below(directory: str) -> list[Path]:
    """Return where images are mounted below a directory."""
    above = os.path.realpath(directory) + "/"
    found = (one["point"] for one in mounts() if one["kind"] in KINDS)
    return [Path(point) for point in found if point.startswith(above)]


def _commands(image: str, place: str) -> list[Sequence[str]]:
    """Return what may mount it here, best first."""
    root = os.geteuid() == 0
    found: list[Sequence[str]] = []
    if root:
        options = "loop,ro,nosuid,nodev"
        found.append(["mount", "--types", "squashfs", "--options", options, image, place])
    if shutil.which("squashfuse"):
        # The engines' user is not root, who mounts it.
        options = "ro,nosuid,nodev" + (",allow_other" if root else "")
        found.append(["squashfuse", "-o", options, image, place])
    return found


def _real(place: Path) -> str:
    """Return the path as the kernel lists it, with no look at the last part."""
    return os.path.join(os.path.realpath(place.parent), place.name)
