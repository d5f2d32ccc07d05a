"""Fabric manager, DCGM and GPUDirect: needed where they are, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_ansible.drivers.around import needs_fabric_manager
from vllm_ansible.drivers.difference import Wanted
from vllm_ansible.drivers.differences import differences

Look = Callable[..., dict[str, Any]]
Packages = Callable[..., list[dict[str, Any]]]
NEW, OLD = "580.159.04", "580.126.20"
CHECK, MANAGE = Wanted(branch=580), Wanted(branch=580, manage=True)
STOPPED = {"exists": True, "active": False, "enabled": False}


def found(look: dict[str, Any], wanted: Wanted = CHECK) -> dict[str, Any]:
    return {one.identifier: one for one in differences(look, wanted)}


@pytest.mark.parametrize(
    ("devices", "models", "switches", "needed"),
    [
        (8, ["NVIDIA H200"] * 8, 4, True),
        (8, ["NVIDIA H200 NVL"] * 8, 0, False),
        (8, ["NVIDIA B200"] * 8, 0, True),
        (1, ["NVIDIA B200"], 0, False),
        # The switches of a rack have hosts of their own.
        (4, ["NVIDIA GB200"] * 4, 0, False),
    ],
)
def test_a_fabric_manager_is_needed_where_switches_join_the_devices(
    look: Look, devices: int, models: list[str], switches: int, needed: bool
) -> None:
    seen = look(devices=["x"] * devices, models=models, switches=switches)
    assert needs_fabric_manager(seen) is needed


def test_a_missing_fabric_manager_is_asked_for_at_the_drivers_version(
    look: Look, with_packages: Packages
) -> None:
    seen = look(packages=with_packages(nvidia_fabricmanager=""))
    mend = found(seen)["fabric-manager-missing"].mend
    assert mend.install == (f"nvidia-fabricmanager={NEW}*",)
    assert mend.enable == ("nvidia-fabricmanager",)


def test_a_fabric_manager_of_another_version_is_named(look: Look, with_packages: Packages) -> None:
    seen = look(packages=with_packages(nvidia_fabricmanager=f"{OLD}-1"))
    one = found(seen)["fabric-manager-version"]
    assert (one.expected, one.found) == (NEW, OLD)


def test_a_distributions_own_name_of_the_fabric_manager_is_kept(
    look: Look, with_packages: Packages
) -> None:
    own = with_packages(nvidia_fabricmanager="", nvidia_fabricmanager_580=f"{OLD}-0ubuntu1")
    mend = found(look(packages=own))["fabric-manager-version"].mend
    assert mend.install == (f"nvidia-fabricmanager-580={NEW}*",)
    same = with_packages(nvidia_fabricmanager="", nvidia_fabricmanager_580=f"{NEW}-0ubuntu1")
    assert found(look(packages=same)) == {}


def test_earlier_branches_name_the_fabric_manager_by_branch(
    look: Look, with_packages: Packages
) -> None:
    earlier = with_packages(
        nvidia_open="570.195.03-1",
        nvidia_kernel_open_dkms="570.195.03-1",
        libnvidia_ml1="570.195.03-1",
        nvidia_fabricmanager="",
    )
    state = {
        "module": {"loaded": "570.195.03"},
        "library": {"version": "570.195.03"},
        "packages": earlier,
    }
    wanted = Wanted(branch=570)
    debian = found(look(**state), wanted)["fabric-manager-missing"].mend
    assert debian.install == ("nvidia-fabricmanager-570=570.195.03*",)
    red_hat = found(look(**state, manager="dnf"), wanted)["fabric-manager-missing"].mend
    assert red_hat.install == ("nvidia-fabric-manager-570.195.03",)


def test_a_stopped_fabric_manager_is_started(look: Look) -> None:
    seen = look(services={"nvidia-fabricmanager": STOPPED})
    assert found(seen)["fabric-manager-stopped"].mend.start == ("nvidia-fabricmanager",)


def test_services_that_need_the_new_module_are_started_by_the_boot(look: Look) -> None:
    stopped = {"nvidia-fabricmanager": STOPPED}
    enabled = {"nvidia-fabricmanager": {**STOPPED, "enabled": True}}
    old = {"loaded": OLD}
    mend = found(look(services=stopped, module=old))["fabric-manager-stopped"].mend
    assert (mend.enable, mend.start) == (("nvidia-fabricmanager",), ())
    assert list(found(look(services=enabled, module=old))) == ["nvml-mismatch"]


def test_a_lent_driver_has_its_fabric_manager_outside(look: Look) -> None:
    lent = look(packages=[], services={"nvidia-fabricmanager": STOPPED}, container=True)
    assert found(lent) == {}
    alone = look(packages=[], services={"nvidia-fabricmanager": STOPPED})
    assert list(found(alone)) == ["fabric-manager-missing"]
    installer = look(packages=[])
    assert found(installer) == {}


def test_dcgm_belongs_to_a_managed_driver_alone(look: Look, with_packages: Packages) -> None:
    seen = look(packages=with_packages(datacenter_gpu_manager_4_cuda13=""))
    assert found(seen) == {}
    mend = found(seen, MANAGE)["dcgm-missing"].mend
    assert mend.install == ("datacenter-gpu-manager-4-cuda13",)
    assert found(seen, Wanted(branch=580, manage=True, dcgm=False)) == {}
    stopped = look(services={"nvidia-dcgm": STOPPED, "nvidia-persistenced": STOPPED})
    assert list(found(stopped, MANAGE)) == ["dcgm-stopped", "persistence-stopped"]
    assert found(stopped) == {}


@pytest.mark.parametrize(
    ("flavour", "kernel", "peer", "cards", "differs"),
    [
        ("open", "5.15.0-1", [], ["mlx5_0"], False),
        ("open", "5.4.0-1", [], ["mlx5_0"], True),
        ("proprietary", "6.8.0-60", [], ["mlx5_0"], True),
        ("proprietary", "6.8.0-60", ["nvidia_peermem"], ["mlx5_0"], False),
        ("proprietary", "6.8.0-60", [], [], False),
    ],
)
def test_cards_reach_device_memory_by_dma_buf_or_by_a_module(
    look: Look, flavour: str, kernel: str, peer: list[str], cards: list[str], differs: bool
) -> None:
    seen = look(module={"flavour": flavour}, kernel=kernel, peer_memory=peer, rdma=cards)
    assert ("gpudirect" in found(seen)) is differs
    if differs:
        assert found(seen)["gpudirect"].mend.modules == ("nvidia-peermem",)
