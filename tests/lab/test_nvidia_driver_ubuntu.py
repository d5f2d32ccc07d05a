"""The role on an Ubuntu host, where packages have other names than on Debian."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import vllm_ansible.lab.lab
from vllm_ansible.lab import Lab
from vllm_ansible.lab.commands import podman

from .driven import MANAGE, Driven, stand_ins
from .ubuntu import ubuntu_image

pytestmark = [pytest.mark.lab, pytest.mark.soak]
UBUNTU = {"distribution": "ubuntu", "distribution_version": "24.04"}


@pytest.fixture
def host(
    make_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Driven]:
    image = ubuntu_image()
    monkeypatch.setattr(vllm_ansible.lab.lab, "ensure_image", lambda _: image)
    with make_lab(1, "driver-ubuntu", root=tmp_path) as lab:
        fingerprint, files = stand_ins(tmp_path / "made", platform.release(), "ubuntu")
        podman("cp", "-", f"{lab.record.hosts[0].container}:/", data=files)

        def sh(line: str, check: bool = True) -> str:
            return str(lab.run("lab1", ["sh", "-c", line], check=check).stdout)

        sh("systemctl daemon-reload; systemctl start stand-in; gpu_host.sh boot")
        yield Driven("lab1", lab.inventory, sh, fingerprint, tmp_path / "runs")


def test_a_driver_is_checked_managed_broken_and_mended_on_ubuntu(host: Driven) -> None:
    assert 'VERSION_ID="24.04"' in host.sh("cat /etc/os-release")
    assert host.missed(**UBUNTU) == ["driver-missing"]
    assert host.play(**MANAGE, **UBUNTU)["failed"], "a boot is due"
    host.sh("gpu_host.sh boot")
    assert not host.play(**MANAGE, **UBUNTU)["failed"]
    held = host.sh("apt-mark showhold").split()
    assert {"libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-fabricmanager"} <= set(held)
    again = host.play(**MANAGE, **UBUNTU)
    assert (again["failed"], again["changed"]) == (False, 0)

    host.sh("apt-get purge --yes --allow-change-held-packages nvidia-fabricmanager")
    host.sh("dpkg --unpack /srv/nvidia/libnvidia-compute-580_580.159.04-1ubuntu1_amd64.deb")
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so"
    host.sh(f"touch {library}.595.71.05; ln -sf libnvidia-ml.so.595.71.05 {library}.1")
    found = host.missed(**UBUNTU)
    assert found == [
        *("half-installed", "library-replaced", "nvml-mismatch"),
        "fabric-manager-missing",
    ]
    assert not host.play(**MANAGE, **UBUNTU)["failed"]
    assert host.missed(**UBUNTU) == []
