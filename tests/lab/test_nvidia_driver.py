"""The role nvidia_driver on a real host, with a real apt and a repository of stand-in packages.

What the bus and the kernel show of devices is emulated (tests/emulators/gpu_host.sh), and so is a
boot; packages, services, holds, keys and repairs are real.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_ansible.lab import Lab
from vllm_ansible.lab.commands import podman

from .driven import MANAGE, Driven, stand_ins

pytestmark = pytest.mark.lab

NEW, OLD, OLDER = "580.159.04", "580.126.20", "570.195.03"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture(scope="module")
def bare(
    make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driven]:
    root = tmp_path_factory.mktemp("driver")
    with make_lab(1, "driver-test", root=root) as lab:
        fingerprint, files = stand_ins(root / "made", platform.release())
        podman("cp", "-", f"{lab.record.hosts[0].container}:/", data=files)

        def sh(line: str, check: bool = True) -> str:
            return str(lab.run("lab1", ["sh", "-c", line], check=check).stdout)

        sh("systemctl daemon-reload; systemctl start stand-in")
        yield Driven("lab1", lab.inventory, sh, fingerprint, root / "runs")


@pytest.fixture(scope="module")
def ready(bare: Driven) -> Driven:
    """Return the host after the driver was installed and, as it were, booted into."""
    bare.sh("gpu_host.sh boot")
    if "nvidia-open" not in bare.sh("dpkg-query --show --showformat='${Package} '"):
        bare.play(**MANAGE)
    bare.sh("gpu_host.sh boot")
    assert not bare.play(**MANAGE)["failed"]
    return bare


@pytest.fixture
def host(ready: Driven) -> Driven:
    """Return the host in order, whatever the test before this one left."""
    if not ready.sound:
        ready.sh("rm -f /etc/apt/apt.conf.d/99unattended; gpu_host.sh boot")
        if ready.play(**MANAGE)["failed"]:
            ready.sh("gpu_host.sh boot")
            assert not ready.play(**MANAGE)["failed"]
    return ready


def test_a_host_without_a_device_is_passed_by(bare: Driven) -> None:
    for mode in ("check", "manage"):
        played = bare.play(nvidia_driver_mode=mode)
        assert (played["failed"], played["changed"]) == (False, 0)
        evidence = played["tasks"]["nvidia_driver : Judge the driver"]["evidence"]
        assert "has no NVIDIA device" in evidence["summary"]
    skipped = bare.play(nvidia_driver_mode="skip")
    said = skipped["tasks"]["nvidia_driver : Say that the driver is not looked at"]
    assert "not looked at" in said["evidence"]["summary"]


def test_a_missing_driver_is_found_and_nothing_is_touched_unasked(bare: Driven) -> None:
    bare.sh("gpu_host.sh boot")
    before = bare.sh("dpkg-query --show; ls -R /etc/apt")
    assert bare.missed() == ["driver-missing"]

    said = bare.play(check=True, **MANAGE)
    assert (said["failed"], said["changed"]) == (False, 1)
    told = said["tasks"]["nvidia_driver : Report what would be repaired"]["msg"]
    assert told[0].startswith("# add the repository http://")
    assert any("nvidia-open" in line for line in told)

    refused = bare.play(nvidia_driver_mode="manage")["tasks"]
    msg = refused["nvidia_driver : Decide what is done about the driver"]["msg"]
    assert "must be rebooted and shares its kernel with this controller" in msg
    assert "nvidia_driver_reboot: never" in msg

    old = bare.play(**MANAGE, distribution_version="11")["tasks"]
    msg = old["nvidia_driver : Decide what is done about the driver"]["msg"]
    assert msg.startswith("no driver packages are known for debian 11 on x86_64")
    assert bare.sh("dpkg-query --show; ls -R /etc/apt") == before


def test_another_key_than_the_one_named_is_not_trusted(bare: Driven) -> None:
    bare.sh("gpu_host.sh boot")
    other = "EB693B3035CD5710E231E123A4B469963BF863CC"
    played = bare.play(**MANAGE, nvidia_driver_key_fingerprint=other)
    refused = played["tasks"]["nvidia_driver : Trust the repository's key"]
    assert (refused["failed"], refused["expected"]) == (True, other)
    assert refused["found"] == bare.fingerprint
    assert bare.sh("ls /etc/apt/keyrings /etc/apt/sources.list.d | grep nvidia", False) == ""


def test_an_administrators_script_does_what_the_role_would_do(bare: Driven) -> None:
    bare.sh("gpu_host.sh boot")
    played = bare.play(**MANAGE, privileges="none")
    judged = played["tasks"]["nvidia_driver : Judge the driver"]
    assert played["failed"] and "an administrator of lab1 runs " in judged["fix"]
    script = Path(judged["fix"].split(" runs ")[1].split(" there")[0])
    assert script.is_relative_to(bare.runs)
    assert script.stat().st_mode & 0o777 == 0o700

    text = script.read_text().replace("systemctl reboot", "true")
    assert text != script.read_text()
    bare.sh(f"cat > /root/driver.sh <<'SCRIPT'\n{text}SCRIPT\nsh /root/driver.sh")
    bare.sh("gpu_host.sh boot")
    # The fabric manager's version follows from the driver's, which is there only now.
    assert bare.missed() == ["fabric-manager-missing"]


def test_a_managed_host_is_converged_by_one_look(ready: Driven) -> None:
    played = ready.play(**MANAGE)
    assert (played["failed"], played["changed"]) == (False, 0)
    looks = [name for name in played["tasks"] if name.endswith("Look at the driver")]
    assert len(looks) == 1
    for service in ("nvidia-fabricmanager", "nvidia-dcgm", "nvidia-persistenced"):
        assert ready.sh(f"systemctl is-active {service}; systemctl is-enabled {service}") == (
            "active\nenabled\n"
        )
    held = ready.sh("apt-mark showhold").split()
    assert {"libnvidia-ml1", "nvidia-fabricmanager", "nvidia-kernel-open-dkms"} <= set(held)
    installed = ready.sh("dpkg-query --show --showformat='${Version}' nvidia-open")
    assert installed == f"{NEW}-1", "the branch was left behind for 595"


# What is broken, how, what the check must then say, and whether mending it needs a boot.
BROKEN = {
    "libraries upgraded under the loaded module": (
        f"gpu_host.sh loaded {OLD}; systemctl stop nvidia-fabricmanager",
        ["nvml-mismatch"],
        True,
    ),
    "a library that an installer put over the package's": (
        f"echo other > {LIBRARIES}/libnvidia-ml.so.595.71.05; "
        f"ln -sf libnvidia-ml.so.595.71.05 {LIBRARIES}/libnvidia-ml.so.1",
        ["library-replaced", "nvml-mismatch"],
        False,
    ),
    "no fabric manager": (
        "apt-get purge --yes --allow-change-held-packages nvidia-fabricmanager",
        ["fabric-manager-missing"],
        False,
    ),
    "a fabric manager of another version": (
        "apt-get install --yes --allow-downgrades --allow-change-held-packages "
        f"nvidia-fabricmanager={OLD}-1",
        ["fabric-manager-version"],
        False,
    ),
    "a fabric manager that does not run": (
        "systemctl stop nvidia-fabricmanager",
        ["fabric-manager-stopped"],
        False,
    ),
    "a package that was unpacked and never configured": (
        f"dpkg --unpack /srv/nvidia/nvidia-kernel-open-dkms_{NEW}-1_amd64.deb",
        ["half-installed"],
        False,
    ),
    "a package whose configuration failed": (
        "cd /var/lib/dpkg/info; cp nvidia-kernel-open-dkms.postinst /root; "
        f"dpkg --unpack /srv/nvidia/nvidia-kernel-open-dkms_{NEW}-1_amd64.deb; "
        "printf '#!/bin/sh\\nexit 1\\n' > nvidia-kernel-open-dkms.postinst; "
        "! dpkg --configure nvidia-kernel-open-dkms; "
        "cp /root/nvidia-kernel-open-dkms.postinst .",
        ["half-installed"],
        False,
    ),
    "packages that unattended upgrades may change": (
        "apt-mark unhold libnvidia-ml1 nvidia-open; "
        "echo 'APT::Periodic::Unattended-Upgrade \"1\";' > /etc/apt/apt.conf.d/99unattended",
        ["unheld"],
        False,
    ),
    "nouveau in place of the driver": (
        "gpu_host.sh loaded ''; mkdir -p /srv/emulated-gpu/module/nouveau",
        ["nouveau", "module-not-loaded"],
        True,
    ),
}


# Each takes a quarter of a minute: one for each kind of fault, the others in make soak.
ALWAYS = (
    "libraries upgraded under the loaded module",
    "a package whose configuration failed",
)


@pytest.mark.parametrize(
    "broken",
    [pytest.param(one, marks=() if one in ALWAYS else pytest.mark.soak) for one in BROKEN],
)
def test_what_is_broken_is_found_and_mended(host: Driven, broken: str) -> None:
    line, expected, boot = BROKEN[broken]
    host.sh(line)
    assert host.missed() == expected
    mended = host.play(**MANAGE)
    assert mended["failed"] is boot, mended["tasks"].get("nvidia_driver : Judge the driver")
    if boot:
        assert host.missed()[0] == expected[0], "only a boot mends it"
        host.sh("rm -rf /srv/emulated-gpu/module/nouveau; gpu_host.sh boot")
        assert not host.play(**MANAGE)["failed"]


@pytest.mark.soak
def test_an_older_branch_is_upgraded_with_its_fabric_manager(host: Driven) -> None:
    host.apt(
        f"nvidia-open={OLDER}-1",
        f"nvidia-kernel-open-dkms={OLDER}-1",
        f"nvidia-driver-cuda={OLDER}-1",
        f"libnvidia-ml1={OLDER}-1",
    )
    host.sh("gpu_host.sh boot")
    # The older branch serves as well: a check alone asks for another one only where it is named.
    assert host.missed() == ["fabric-manager-version"]
    assert host.missed(nvidia_driver_branch=580)[0] == "branch-older"
    stopped = host.play(**MANAGE)
    assert stopped["failed"], "the new module waits for a boot"
    assert host.missed()[0] == "nvml-mismatch"
    host.sh("gpu_host.sh boot")
    assert not host.play(**MANAGE)["failed"]
    assert host.missed() == []


def test_a_run_that_died_while_installing_is_resumed(host: Driven) -> None:
    host.sh("apt-get purge --yes --allow-change-held-packages '*nvidia*'; gpu_host.sh boot")
    # dpkg is killed between two packages, as a lost connection or a power cut would.
    host.sh(
        "cd /srv/nvidia; dpkg --unpack --force-depends "
        f"nvidia-open_{NEW}-1_amd64.deb nvidia-driver-cuda_{NEW}-1_amd64.deb"
    )
    assert host.missed()[0] == "half-installed"
    assert host.play(**MANAGE)["failed"], "a boot is due"
    host.sh("gpu_host.sh boot")
    assert not host.play(**MANAGE)["failed"]


@pytest.mark.soak
def test_a_host_that_computes_keeps_its_driver(host: Driven) -> None:
    host.sh("apt-get purge --yes --allow-change-held-packages nvidia-fabricmanager")
    host.sh("mknod -m 666 /dev/nvidia0 c 1 3")
    host.sh("systemd-run --unit=engine sh -c 'exec sleep infinity 3>/dev/nvidia0'")
    try:
        refused = host.play(**MANAGE)["tasks"]
        decided = refused["nvidia_driver : Decide what is done about the driver"]
        assert "lab1 computes: sleep" in decided["msg"]
        assert "allow_disruption" in decided["fix"]
    finally:
        host.sh("systemctl stop engine; rm /dev/nvidia0")
