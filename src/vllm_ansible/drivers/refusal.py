"""What is not done to a host's driver, said before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.drivers.difference import Difference, Look, Wanted
from vllm_ansible.drivers.mend import Mend, together
from vllm_ansible.drivers.state import foreign, version
from vllm_ansible.problem import Problem

REBOOT = "sudo systemctl reboot"


def refusals(
    name: str,
    look: Look,
    wanted: Wanted,
    found: Sequence[Difference],
    *,
    reboot: bool,
    controller: bool,
    disruption: bool,
) -> list[Problem]:
    """Return why a managed driver is left as it is; nothing where the differences may be mended.

    reboot: this run may reboot the host. controller: it is the machine that Ansible runs on.
    disruption: what computes on the host may be ended.
    """
    if not wanted.manage or not look["present"] or not found:
        return []
    mend = together(one.mend for one in found)
    checks = (
        _foreign(name, look, mend),
        _in_use(name, look, mend, disruption),
        _reboot(name, look, mend, reboot, controller),
    )
    return [problem for problem in checks if problem]


def _foreign(name: str, look: Look, mend: Mend) -> Problem | None:
    if not foreign(look) or not (mend.install or mend.reinstall):
        return None
    return Problem(
        f"{name} has driver {version(look)}, which no package brought",
        expected="a driver from packages, or none",
        found=f"driver {version(look)} from an installer or an image",
        where=name,
        fix="remove it (nvidia-uninstall) or set nvidia_driver_mode: check",
    )


def _in_use(name: str, look: Look, mend: Mend, disruption: bool) -> Problem | None:
    # Holds, services and repositories disturb nobody.
    if disruption or not look["users"] or not (mend.install or mend.reinstall or mend.reboot):
        return None
    return Problem(
        f"{name} computes: {', '.join(look['users'])} would lose its devices",
        expected="no process that holds a device",
        found=", ".join(look["users"]),
        where=name,
        fix="stop what computes there, or set allow_disruption: true",
    )


def _reboot(name: str, look: Look, mend: Mend, reboot: bool, controller: bool) -> Problem | None:
    if not mend.reboot or not reboot or not (controller or look["container"]):
        return None
    why = "shares its kernel with this controller" if controller else "is a container"
    first = (
        "set nvidia_driver_reboot: never and run again; then as its administrator"
        if mend.now
        else "as its administrator"
    )
    return Problem(
        f"{name} must be rebooted and {why}, so it is not rebooted from here",
        expected="a host that can be rebooted from the controller",
        found=f"{name} {why}",
        where=name,
        fix=f"{first}: {REBOOT}; and run again",
    )
