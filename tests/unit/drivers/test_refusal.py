"""What is not done to a driver is said before anything is touched, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm_ansible.drivers.difference import Wanted
from vllm_ansible.drivers.differences import differences
from vllm_ansible.drivers.refusal import refusals

Look = Callable[..., dict[str, Any]]
Packages = Callable[..., list[dict[str, Any]]]
MANAGE = Wanted(branch=580, manage=True)
OLD = {"loaded": "580.126.20"}


def refused(look: dict[str, Any], wanted: Wanted = MANAGE, **said: bool) -> list[str]:
    flags = {"reboot": True, "controller": False, "disruption": False, **said}
    found = refusals("n1", look, wanted, differences(look, wanted), **flags)
    return [problem.sentence() for problem in found]


def test_a_host_elsewhere_is_rebooted(look: Look) -> None:
    assert refused(look(module=OLD)) == []


def test_the_controller_is_not_rebooted_from_itself(look: Look) -> None:
    (said,) = refused(look(module=OLD), controller=True)
    assert "n1 must be rebooted and shares its kernel with this controller" in said
    assert "as its administrator: sudo systemctl reboot; and run again" in said
    assert "nvidia_driver_reboot" not in said, "there is nothing to do before it"
    assert refused(look(module=OLD), controller=True, reboot=False) == []


def test_what_can_be_done_before_a_reboot_is_offered(look: Look, with_packages: Packages) -> None:
    seen = look(module=OLD, packages=with_packages(datacenter_gpu_manager_4_cuda13=""))
    (said,) = refused(seen, controller=True)
    assert "set nvidia_driver_reboot: never and run again; then" in said


def test_a_container_is_not_rebooted(look: Look) -> None:
    (said,) = refused(look(module=OLD, container=True))
    assert "is a container" in said


def test_nothing_is_refused_where_nothing_differs_or_is_asked(look: Look) -> None:
    assert refused(look(), controller=True) == []
    assert refused(look(module=OLD), Wanted(branch=580), controller=True) == []


def test_a_host_that_computes_keeps_its_driver_and_gets_its_holds(
    look: Look, with_packages: Packages
) -> None:
    users = ["python (4711)"]
    (said,) = refused(look(module=OLD, users=users))
    assert "n1 computes: python (4711) would lose its devices" in said
    assert refused(look(module=OLD, users=users), disruption=True) == []
    loose = look(users=users)
    for one in loose["packages"]:
        one["held"] = False
    assert refused(loose) == []
    # A monitor beside it is no reason to stop, but its installation may restart daemons.
    assert refused(look(users=users, packages=with_packages(datacenter_gpu_manager_4_cuda13="")))


def test_a_driver_from_an_installer_is_not_mixed_with_packages(look: Look) -> None:
    (said,) = refused(look(packages=[]))
    assert "n1 has driver 580.159.04, which no package brought" in said
    assert "nvidia-uninstall" in said
