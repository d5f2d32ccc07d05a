"""A managed host has everything around its driver, at the driver's version, held."""

from testinfra.host import Host

VERSION = "580.159.04-1"


def test_the_fabric_manager_has_the_drivers_version_and_runs(host: Host) -> None:
    for package in ("nvidia-fabricmanager", "libnvidia-ml1", "nvidia-kernel-open-dkms"):
        assert host.package(package).version == VERSION, package
    for service in ("nvidia-fabricmanager", "nvidia-dcgm", "nvidia-persistenced"):
        assert host.service(service).is_running, service
        assert host.service(service).is_enabled, service


def test_the_driver_is_held_and_its_monitor_is_not(host: Host) -> None:
    held = host.check_output("apt-mark showhold").split()
    assert {"nvidia-fabricmanager", "libnvidia-ml1", "nvidia-open"} <= set(held)
    assert "datacenter-gpu-manager-4-cuda13" not in held
    upgrade = host.check_output("apt-get --simulate dist-upgrade")
    assert "Inst nvidia" not in upgrade, "595 lies in the repository"


def test_the_repository_is_proven_by_its_own_key_alone(host: Host) -> None:
    source = host.file("/etc/apt/sources.list.d/vllm-ansible-nvidia.sources")
    assert "Signed-By: /etc/apt/keyrings/vllm-ansible-nvidia.asc" in source.content_string
    assert source.mode == 0o644
    key = host.file("/etc/apt/keyrings/vllm-ansible-nvidia.asc")
    assert (key.user, key.mode) == ("root", 0o644)
    policy = host.check_output("apt-cache policy nvidia-open")
    assert ":8399" in policy
