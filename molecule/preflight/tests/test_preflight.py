"""What a repair mended is mended on the host itself, and a preflight leaves nothing there."""

from testinfra.host import Host


def test_the_hostname_means_the_data_plane(
    host: Host, name: str, data_addresses: dict[str, str]
) -> None:
    said = host.check_output("getent ahostsv4 %s", name).split()[0]
    assert said == data_addresses[name]


def test_shared_memory_is_large_again(host: Host) -> None:
    size = int(host.check_output("df --output=size -B1M /dev/shm | tail -n 1"))
    memory = int(host.check_output("awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo"))
    assert size >= 0.3 * memory


def test_services_of_the_cluster_open_many_files_and_the_sites_setting_stays(
    host: Host, name: str
) -> None:
    if name != "lab1":
        assert not host.file("/etc/systemd/system/vllm-molecule-.service.d").exists
        return
    asked = "systemd-run --quiet --wait --pipe --collect --unit=vllm-%s-try sh -c 'ulimit -n'"
    assert int(host.check_output(asked.replace("%s", "molecule"))) >= 8192
    assert int(host.check_output(asked.replace("%s", "other"))) == 1024


def test_nothing_is_left_of_the_look(host: Host, cluster_dir: str) -> None:
    for place in (cluster_dir, f"{cluster_dir}/models", "/run/vllm-molecule"):
        assert host.check_output("find %s -maxdepth 1 -name '.preflight*'", place) == ""
    assert (
        host.check_output("systemctl list-units --all --plain --no-legend 'vllm-*-preflight*'")
        == ""
    )
