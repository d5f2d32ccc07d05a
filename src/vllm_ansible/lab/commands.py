"""Run other programs with argument lists and turn their failures into one readable error."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence

PACKAGES = {
    "conmon": "conmon",
    "ip": "iproute2",
    "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "netavark": "netavark",
    "nft": "nftables",
    "podman": "podman",
    "qemu-system-x86_64": "qemu-system-x86",
    "runc": "runc",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "tc": "iproute2",
}
# Debian keeps helpers of podman and the administrator's tools off an ordinary PATH.
SEARCH_PATH = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/lib/podman"]
)


class LabError(Exception):
    """Something the person at the keyboard has to know, in one sentence."""


def require_root() -> None:
    """Refuse early: containers with systemd and shaped links need root."""
    if os.geteuid() != 0:
        raise LabError(
            f"The lab needs root to start hosts and shape links, found uid {os.geteuid()}; "
            "run the same command with sudo."
        )


def missing_tools(tools: Sequence[str]) -> list[str]:
    """Return the tools that this machine does not have."""
    return [tool for tool in tools if shutil.which(tool, path=SEARCH_PATH) is None]


def require_tools(tools: Sequence[str]) -> None:
    """Name every missing tool at once, with the command that installs them."""
    missing = missing_tools(tools)
    if missing:
        packages = sorted({PACKAGES.get(tool, tool) for tool in missing})
        raise LabError(
            f"The lab needs {', '.join(missing)}, not found on this machine; "
            f"run: apt-get install {' '.join(packages)}"
        )


def run(
    argv: Sequence[str],
    *,
    data: bytes | None = None,
    check: bool = True,
    timeout: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end; with check, a failure becomes a LabError that quotes it."""
    try:
        done = subprocess.run(  # noqa: S603  # fixed tools with lists of words, never a shell
            list(argv),
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            check=False,
            timeout=timeout,
            env={**os.environ, "PATH": SEARCH_PATH},
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{shlex.join(argv)}` was not done after {timeout:.0f} s.") from error
    result = subprocess.CompletedProcess(
        list(argv),
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )
    if check and result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise LabError(
            f"`{shlex.join(argv)}` ended with {result.returncode}: "
            f"{' / '.join(said[-3:]) or 'it said nothing'}"
        )
    return result


def podman(*arguments: str, data: bytes | None = None, check: bool = True) -> str:
    """Run podman with runc, which boots systemd where crun refuses hybrid cgroups."""
    return run(["podman", "--runtime", "runc", *arguments], data=data, check=check).stdout.strip()
