"""Each thing that can be wrong with a driver is found, with what mends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.drivers.decision import decide
from vllm_ansible.drivers.difference import Difference, Wanted
from vllm_ansible.drivers.differences import differences
from vllm_ansible.drivers.repository import repository

Look = Callable[..., dict[str, Any]]
Packages = Callable[..., list[dict[str, Any]]]
NEW, OLD = "580.159.04", "580.126.20"
CHECK = Wanted(branch=580)
HOST = {"name": "n1", "distribution": "debian", "distribution_version": "12"} | {
    "architecture": "x86_64"
}
SOURCE = repository(HOST, "", "", "")
MANAGE = Wanted(branch=580, manage=True, repository=SOURCE)
IN_PLACE = {SOURCE.path: SOURCE.content}


def names(found: list[Difference]) -> list[str]:
    return [one.identifier for one in found]


def only(found: list[Difference]) -> Difference:
    assert len(found) == 1, names(found)
    return found[0]


def test_a_healthy_host_differs_in_nothing(look: Look) -> None:
    assert differences(look(), CHECK) == []
    managed = look(repository=IN_PLACE)
    assert differences(managed, MANAGE) == []


def test_a_host_without_a_device_is_passed_by() -> None:
    found = decide("n1", {"present": False, "devices": []}, MANAGE)
    assert (found["differences"], found["steps"]["now"]) == ([], False)
    assert "no NVIDIA device" in found["summary"]
    assert found["values"] == {"applies": False}


def test_a_real_h200_in_a_virtual_machine_passes_its_check() -> None:
    """Looked at with nvidia_driver_info on the machine of tests/data/README.md, 2026-11-20.

    An image's libxnvctrl0 of driver 510 is no driver. A container does not see the daemons of its
    machine; this is none, though it was started from a container's image.
    """
    seen = json.loads((Path(__file__).parent / "h200.json").read_text())
    assert differences(seen, CHECK) == []
    summary = decide("n1", seen, CHECK)["summary"]
    assert "driver 580.159.04 (open), 1 device(s) on its bus" in summary
    assert "fabric manager" not in summary
    contained = decide("n1", {**seen, "container": True}, CHECK)
    assert "fabric manager is not seen" in contained["summary"]


NOTHING = {"loaded": "", "flavour": "", "built": False, "headers": False}


def test_a_missing_driver_is_installed_with_headers_and_its_branch_pinned(look: Look) -> None:
    bare = look(packages=[], library={"version": ""}, module=NOTHING)
    one = only(differences(bare, CHECK))
    assert one.identifier == "driver-missing"
    assert one.mend.pin == ("nvidia-driver-pinning-580",)
    assert one.mend.install == ("linux-headers-6.8.0-60-generic", "nvidia-open")
    assert one.mend.reboot


def test_a_missing_driver_on_red_hat_follows_a_stream(look: Look) -> None:
    bare = look(packages=[], library={"version": ""}, module=NOTHING, manager="dnf")
    mend = only(differences(bare, CHECK)).mend
    assert mend.pin == ("nvidia-driver:580-open",)
    assert mend.install == ("kernel-devel-6.8.0-60-generic", "nvidia-open")


def test_a_branch_that_is_old_enough_to_serve_is_no_difference(look: Look) -> None:
    have = int(look()["module"]["loaded"].split(".")[0])
    assert differences(look(), Wanted(branch=have + 15, oldest=have)) == []
    (found,) = differences(look(), Wanted(branch=have + 15, oldest=have + 1))
    assert (found.identifier, found.expected) == ("branch-older", f"{have + 1} or newer")
    assert str(have + 15) in found.mend.pin[0]


def test_an_older_branch_is_upgraded_and_a_newer_one_left_alone(look: Look) -> None:
    found = differences(look(), Wanted(branch=595))
    assert names(found) == ["branch-older"]
    assert differences(look(), Wanted(branch=570)) == []


def test_proprietary_modules_matter_only_where_the_driver_is_managed(
    look: Look, with_packages: Packages
) -> None:
    closed = look(
        module={"flavour": "proprietary"},
        rdma=[],
        packages=with_packages(
            nvidia_open="", nvidia_kernel_open_dkms="", nvidia_kernel_dkms=f"{NEW}-1"
        ),
        repository=IN_PLACE,
    )
    assert differences(closed, CHECK) == []
    assert names(differences(closed, MANAGE)) == ["flavour"]


def test_libraries_upgraded_under_the_loaded_module_wait_for_a_reboot(look: Look) -> None:
    found = differences(look(module={"loaded": OLD}), CHECK)
    one = only(found)
    assert (one.identifier, one.mend.reboot, one.mend.now) == ("nvml-mismatch", True, False)
    assert (one.expected, one.found) == (f"{NEW}, the library's", f"{OLD} is loaded")


def test_a_replaced_library_is_put_back_without_a_reboot(look: Look) -> None:
    found = differences(look(library={"version": "595.71.05"}), CHECK)
    assert names(found) == ["library-replaced", "nvml-mismatch"]
    assert "libnvidia-ml1" in found[0].mend.reinstall
    assert not found[1].mend.reboot


def test_a_module_older_than_its_package_waits_for_a_reboot(look: Look) -> None:
    # As where a program brings the library from elsewhere.
    found = differences(look(module={"loaded": OLD}, library={"version": ""}), CHECK)
    assert names(found) == ["reboot-pending"]
    assert found[0].mend.reboot


def test_a_module_that_was_never_built_needs_headers(look: Look) -> None:
    unbuilt = look(module=NOTHING)
    one = only(differences(unbuilt, CHECK))
    assert one.identifier == "module-not-built"
    assert one.mend.install == ("linux-headers-6.8.0-60-generic",)
    assert "nvidia-kernel-open-dkms" in one.mend.reinstall
    with_headers = look(module={**NOTHING, "headers": True})
    assert only(differences(with_headers, CHECK)).mend.install == ()


def test_nouveau_is_rebooted_away(look: Look) -> None:
    found = differences(look(module={"nouveau": True, "loaded": "", "flavour": ""}), CHECK)
    assert names(found) == ["nouveau", "module-not-loaded"]
    assert all(one.mend.reboot for one in found)


def test_packages_of_two_drivers_are_brought_to_one(look: Look, with_packages: Packages) -> None:
    mixed = look(packages=with_packages(libnvidia_ml1=f"{OLD}-1"))
    found = differences(mixed, CHECK)
    assert names(found)[0] == "packages-differ"
    assert found[0].mend.install == (f"libnvidia-ml1={NEW}*",)


def test_half_installed_packages_are_repaired_first(look: Look) -> None:
    found = differences(look(broken=["libfoo", "nvidia-open"], module={"loaded": OLD}), CHECK)
    assert names(found) == ["half-installed", "nvml-mismatch"]
    assert found[0].mend.repair and "libfoo" in found[0].found


def test_only_a_managed_host_needs_our_repository(look: Look) -> None:
    assert names(differences(look(), MANAGE)) == ["repository"]
    other = {"/etc/apt/sources.list.d/cuda.list": f"deb [x] {SOURCE.url}/ /\n"}
    assert differences(look(repository=other), MANAGE) == []
    for line in (f"# deb {SOURCE.url}/ /", f"deb {SOURCE.url}/older/ /"):
        seen = look(repository={"/etc/apt/sources.list.d/cuda.list": line})
        assert names(differences(seen, MANAGE)) == ["repository"]


@pytest.mark.parametrize(
    ("unattended", "wanted", "expected"),
    [(False, CHECK, []), (True, CHECK, ["unheld"]), (False, MANAGE, ["unheld"])],
)
def test_holds_matter_where_somebody_upgrades_unasked(
    look: Look, unattended: bool, wanted: Wanted, expected: list[str]
) -> None:
    loose = look(unattended=unattended, repository=IN_PLACE)
    for one in loose["packages"]:
        one["held"] = one["name"] != "libnvidia-ml1"
    found = differences(loose, wanted)
    assert names(found) == expected
    if expected:
        assert found[0].mend.hold == ("libnvidia-ml1",)


@pytest.mark.parametrize(("pin", "loose"), [("580", True), (NEW, False)])
def test_a_pin_of_one_very_version_holds_and_one_of_a_branch_does_not(
    look: Look, pin: str, loose: bool
) -> None:
    seen = look(unattended=True)
    for one in seen["packages"]:
        one["held"] = False
    seen["packages"].append(
        {"name": f"nvidia-driver-pinning-{pin}", "version": f"{pin}-1", "held": False}
    )
    assert (names(differences(seen, CHECK)) == ["unheld"]) is loose


def test_a_container_is_counted_the_devices_that_it_was_given(
    look: Callable[..., dict[str, Any]],
) -> None:
    found = decide("n1", look(container=True, withheld=6), CHECK)
    assert "8 device(s) on its bus, 2 of them given to this container" in found["summary"]
    assert found["values"]["devices"] == 2
