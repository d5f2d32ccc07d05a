"""A managed host has the wanted driver in its kernel and nothing left of its installation."""

import time

from testinfra.host import Host


def test_the_older_driver_was_replaced(host: Host) -> None:
    assert host.file("/sys/module/enflame/version").content_string.strip() == "1.7.2.14"
    assert "EFSMI: 1.7.2.14" in host.check_output("efsmi")


def test_nothing_is_left_of_the_installation(host: Host) -> None:
    for name in ("enflame_driver.json", "TopsPlatform_1.4.6_deb_amd64.run"):
        assert not host.file(f"/var/lib/vllm-ansible/{name}").exists


def test_the_health_is_published_and_kept_up(host: Host, cluster_dir: str) -> None:
    file = f"{cluster_dir}/metrics/vllm_devices_molecule.prom"
    text = host.file(file).content_string
    assert "vllm_devices 8" in text
    assert text.count("vllm_device_healthy{") == 8
    assert all(line.endswith(" 1") for line in text.splitlines() if "_healthy{" in line)
    # One of the hosts has systemd watch the process, the other one supervisord.
    deadline = time.monotonic() + 60
    while host.file(file).content_string == text:
        assert time.monotonic() < deadline, "nobody looks at the devices any more"
        time.sleep(1)
