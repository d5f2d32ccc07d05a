"""What is not done to a host's Enflame driver, said before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.drivers.enflame.difference import PEER_MODULE, Difference, Look, Wanted, together
from vllm_ansible.problem import Problem


def refusals(
    name: str, look: Look, wanted: Wanted, found: Sequence[Difference], sha256: str | None
) -> list[Problem]:
    """Return why a managed driver is left as it is; nothing where the differences may be mended.

    sha256 is that of the file on the controller, None where there is no such file.
    """
    mend = together(one.mend for one in found)
    if not wanted.manage or not mend:
        return []
    problems = [_may_load(name, look)]
    if mend.install:
        problems += [_said(wanted), _file(wanted, sha256), _headers(name, look)]
    if mend.unload:
        problems += [_in_use(name, look)]
    return [problem for problem in problems if problem]


def _may_load(name: str, look: Look) -> Problem | None:
    if look["may_load"]:
        return None
    return Problem(
        f"root of {name} may not load kernel modules, as in a container",
        expected="the capability CAP_SYS_MODULE",
        found="root without it",
        where=name,
        fix="manage the driver on the machine around it, and set enflame_driver_mode: check here",
    )


def _said(wanted: Wanted) -> Problem | None:
    said = {
        "enflame_driver_file": wanted.file,
        "enflame_driver_sha256": wanted.sha256,
        "enflame_driver_version": wanted.version,
    }
    lacks = [name for name, value in said.items() if not value]
    if not lacks:
        return None
    return Problem(
        f"Enflame's driver cannot be installed without {' and '.join(lacks)}",
        expected="the vendor's .run file, its SHA-256 and the version that it brings",
        found=f"no {', no '.join(lacks)}",
        where=lacks[0],
        fix="set them, or enflame_driver_mode: check",
    )


def _file(wanted: Wanted, sha256: str | None) -> Problem | None:
    if not wanted.file or not wanted.sha256:
        return None
    if sha256 is None:
        return Problem(
            f"{wanted.file} is not on the controller",
            expected="the vendor's .run file",
            found="no such file",
            where="enflame_driver_file",
            fix="copy it there, or correct enflame_driver_file",
        )
    if sha256 == wanted.sha256.lower():
        return None
    return Problem(
        f"{wanted.file} is not the file whose checksum was given",
        expected=wanted.sha256,
        found=sha256,
        where="enflame_driver_sha256",
        fix="fetch the file again from the vendor, or correct the checksum",
    )


def _headers(name: str, look: Look) -> Problem | None:
    if look["headers"]:
        return None
    kernel = look["kernel"]
    return Problem(
        f"{name} has no headers of the kernel that it runs, {kernel}",
        expected=f"/lib/modules/{kernel}/build",
        found="nothing there",
        where=name,
        fix=f"install linux-headers-{kernel}, on Rocky and RHEL kernel-devel-{kernel}, "
        "or boot the kernel that has headers",
    )


def _in_use(name: str, look: Look) -> Problem | None:
    """Refuse to unload what is held: by processes, by other modules, or by somebody unseen."""
    strange = [one for one in look["holders"] if one != PEER_MODULE]
    unseen = look["references"] - len(look["holders"])
    if look["users"]:
        who, fix = ", ".join(look["users"]), "stop what computes there, containers too"
    elif strange:
        who, fix = f"module {', '.join(strange)}", f"rmmod {' '.join(strange)}, if nothing needs it"
    elif unseen > 0:
        who = f"{unseen} reference(s) held by a process not visible from here"
        fix = "look for containers and virtual machines that were given a device: lsof /dev/gcu*"
    else:
        return None
    return Problem(
        f"{name} uses its Enflame devices: {who}",
        expected="nothing that holds the driver",
        found=who,
        where=name,
        fix=f"{fix}; then run again",
    )
