"""Nothing of the cluster runs, listens or is supervised; what was costly to make is kept."""

from testinfra.host import Host


def test_no_process_of_the_service_is_left(host: Host) -> None:
    assert host.process.filter(user="vllm-molecule") == []


def test_no_supervisord_is_left(host: Host) -> None:
    assert host.process.filter(comm="supervisord") == []
    assert not host.file("/run/vllm-molecule-supervisord").exists


def test_systemd_knows_no_unit_of_the_cluster(host: Host) -> None:
    listed = ["systemctl list-units --all --plain", "systemctl list-unit-files --plain"]
    for command in listed:
        assert "vllm-molecule" not in host.check_output(f"{command} --no-legend")


def test_only_ssh_listens(host: Host) -> None:
    ports = {one.rpartition(":")[2] for one in host.socket.get_listening_sockets()}
    assert {port for port in ports if port.isdigit()} == {"22"}


def test_what_can_be_made_again_at_once_is_gone_and_the_rest_is_kept(
    host: Host, cluster_dir: str
) -> None:
    assert not host.file("/run/vllm-molecule").exists
    left = set(host.check_output(f"ls {cluster_dir}").split())
    assert left == {"environments", "models", "tasks", "tools", "tools.txt", "wheels"}
    assert host.file(f"{cluster_dir}/models").is_directory
