"""What a look reports is what lies in the host's own file systems; trees stand in for them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from vllm_ansible.node.drivers import kernel
from vllm_ansible.node.drivers.look import look, parse_services
from vllm_ansible.node.drivers.packages import packages, parse

NEW = "580.159.04"
SHOWN = {
    "dpkg-query": "hi \tnvidia-open\t580.159.04-1\nii \tlibnvidia-ml1\t580.159.04-1\n",
    "apt-config": 'APT::Periodic::Unattended-Upgrade "1";\n',
}


def nothing(argv: list[str]) -> tuple[int, str]:
    return 0, SHOWN.get(argv[0], "")


def write(root: Path, **files: str) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")


def device(root: Path, address: str, vendor: str, kind: str) -> None:
    place = f"sys/bus/pci/devices/{address}"
    write(root, **{f"{place}/vendor": vendor, f"{place}/class": kind})


@pytest.fixture
def host(tmp_path: Path) -> Path:
    device(tmp_path, "0000:10:00.0", "0x10de", "0x030200")
    device(tmp_path, "0000:10:00.1", "0x10de", "0x040300")
    device(tmp_path, "0000:a0:00.0", "0x10de", "0x068000")
    device(tmp_path, "0000:b0:00.0", "0x15b3", "0x068000")
    told = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {NEW}  Release Build"
    write(
        tmp_path,
        **{
            "sys/module/nvidia/version": NEW,
            "proc/driver/nvidia/version": told,
            "proc/driver/nvidia/gpus/0000:10:00.0/information": "Model: \t\t NVIDIA H200\nIRQ: 1",
            "proc/sys/kernel/random/boot_id": "abc",
            f"usr/lib64/libnvidia-ml.so.{NEW}": "",
            f"lib/modules/{platform.release()}/updates/dkms/nvidia.ko.zst": "",
            "var/lib/dpkg/status": "",
            "etc/apt/sources.list.d/cuda.list": "deb https://x/nvidia/ /",
            "etc/apt/sources.list.d/other.list": "deb https://x/other/ /",
        },
    )
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{NEW}")
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    return tmp_path


def test_a_whole_look(host: Path) -> None:
    found = look(nothing, str(host))
    assert found["devices"] == ["0000:10:00.0"], "a card's audio function is no device"
    assert (found["switches"], found["models"]) == (1, ["NVIDIA H200"])
    assert found["module"] == {
        "loaded": NEW,
        "flavour": "open",
        "built": True,
        "headers": False,
        "nouveau": False,
    }
    assert found["library"]["version"] == NEW
    assert (found["manager"], found["unattended"], found["broken"]) == ("apt", True, [])
    assert [one["held"] for one in found["packages"]] == [True, False]
    assert list(found["repository"]) == ["/etc/apt/sources.list.d/cuda.list"]
    assert (found["rdma"], found["peer_memory"], found["boot_id"]) == (["mlx5_0"], [], "abc")
    assert found["container"] is False


def test_devices_that_a_container_was_not_given_are_counted(host: Path) -> None:
    device(host, "0000:20:00.0", "0x10de", "0x030200")
    write(host, **{"dev/nvidia1": "", "dev/nvidiactl": ""})
    assert look(nothing, str(host))["withheld"] == 0, "a machine of its own lacks them itself"
    write(host, **{"run/.containerenv": ""})
    assert look(nothing, str(host))["withheld"] == 1


def test_a_host_without_a_device_is_asked_nothing_more(tmp_path: Path) -> None:
    def refuse(argv: list[str]) -> tuple[int, str]:
        raise AssertionError(argv)

    assert look(refuse, str(tmp_path)) == {"present": False, "devices": []}


def test_proprietary_modules_nouveau_and_peer_memory_are_told(host: Path) -> None:
    write(host, **{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module"})
    for name in ("nouveau", "nvidia_peermem"):
        (host / "sys/module" / name).mkdir()
    found = look(nothing, str(host))
    assert (found["module"]["flavour"], found["module"]["nouveau"]) == ("proprietary", True)
    assert found["peer_memory"] == ["nvidia_peermem"]


def test_a_library_without_its_file_is_none(host: Path) -> None:
    (host / f"usr/lib64/libnvidia-ml.so.{NEW}").unlink()
    assert kernel.library(host) == {"path": "", "version": ""}


def test_every_broken_state_of_dpkg_is_named() -> None:
    lines = [
        "ii \tnvidia-open\t1",
        "iU \tunpacked\t1",
        "iF \tnvidia-half-configured\t1",
        "iH \thalf-installed\t1",
        "iHR\treinstall\t1",
        "rc \tnvidia-removed\t1",
        "un \tnvidia-never\t",
        "iW \tnvidia-triggers-awaited\t1",
        "hi \tnvidia-held\t1",
        "no such line",
    ]
    ours, broken = parse("\n".join(lines))
    assert broken == ["unpacked", "nvidia-half-configured", "half-installed", "reinstall"]
    assert [one["name"] for one in ours] == [
        "nvidia-open",
        "nvidia-half-configured",
        "nvidia-triggers-awaited",
        "nvidia-held",
    ]
    assert [one["name"] for one in ours if one["held"]] == ["nvidia-held"]


@pytest.mark.parametrize(
    ("settings", "unattended", "held"),
    [
        ("", False, []),
        ('APT::Periodic::Unattended-Upgrade "0";', False, []),
        ('APT::Periodic::Unattended-Upgrade "1";', True, []),
        (
            'APT::Periodic::Unattended-Upgrade "1";\n'
            'Unattended-Upgrade::Package-Blacklist:: "(lib)?nvidia";',
            True,
            ["libnvidia-ml1"],
        ),
        ('Unattended-Upgrade::Package-Blacklist:: "(nonsense";', False, []),
    ],
)
def test_unattended_upgrades_and_what_they_spare(
    tmp_path: Path, settings: str, unattended: bool, held: list[str]
) -> None:
    answers = {"dpkg-query": "ii \tlibnvidia-ml1\t1-1\n", "apt-config": settings}
    found = packages(tmp_path, "apt", lambda argv: (0, answers[argv[0]]))
    assert found["unattended"] is unattended
    assert [one["name"] for one in found["packages"] if one["held"]] == held


def test_rpm_hosts_tell_duplicates_locks_and_timers(tmp_path: Path) -> None:
    listed = (
        "ii \tnvidia-open\t3:580.159.04-1.el9\n"
        "ii \tlibnvidia-ml\t3:580.126.20-1.el9\nii \tlibnvidia-ml\t3:580.159.04-1.el9\n"
        "ii \tkmod-nvidia-580.159.04-5.14.0-1\t3:580.159.04-1.el9\n"
    )
    write(tmp_path, **{"etc/dnf/plugins/versionlock.list": "nvidia-open-3:580.159.04-1.el9.*"})
    wants = tmp_path / "etc/systemd/system/timers.target.wants"
    wants.mkdir(parents=True)
    (wants / "dnf-automatic-install.timer").symlink_to("/nowhere")
    found = packages(tmp_path, "dnf", lambda argv: (0, listed))
    assert found["broken"] == ["libnvidia-ml"]
    assert [one["name"] for one in found["packages"] if one["held"]] == ["nvidia-open"]
    assert found["unattended"] is True


def test_services_are_told_by_systemd() -> None:
    text = (
        "Id=nvidia-dcgm.service\nLoadState=loaded\nActiveState=active\nUnitFileState=disabled\n\n"
        "Id=nvidia-fabricmanager.service\nLoadState=not-found\nActiveState=inactive\n"
        "UnitFileState=\n"
    )
    found = parse_services(text)
    assert found["nvidia-dcgm"] == {"exists": True, "active": True, "enabled": False}
    assert found["nvidia-fabricmanager"] == {"exists": False, "active": False, "enabled": False}


def test_without_systemd_processes_tell(host: Path) -> None:
    write(host, **{"proc/12/comm": "nv-fabricmanage"})
    found = look(nothing, str(host))["services"]
    assert found["nvidia-fabricmanager"]["active"] is True
    assert found["nvidia-dcgm"]["active"] is False


def test_who_holds_a_device_is_told_and_daemons_are_nobody(tmp_path: Path) -> None:
    for number, name in (("7", "python3"), ("8", "nv-hostengine"), ("9", "bash")):
        write(tmp_path, **{f"proc/{number}/comm": name})
        (tmp_path / f"proc/{number}/fd").mkdir()
    os.symlink("/dev/nvidia3", tmp_path / "proc/7/fd/5")
    os.symlink("/dev/nvidia0", tmp_path / "proc/8/fd/5")
    os.symlink("/dev/nvidiactl", tmp_path / "proc/9/fd/5")
    assert kernel.users(tmp_path) == ["python3 (7)"]
