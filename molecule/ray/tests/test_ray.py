"""One Ray cluster of exactly the planned hosts, closed to everybody without its token."""

from collections.abc import Callable
from typing import Any

from testinfra.host import Host


def test_each_host_runs_one_node_as_the_service(
    host: Host, name: str, family: Callable[[str], list[dict[str, Any]]]
) -> None:
    found = family("chat-ray")
    assert {one["user"] for one in found} == {"vllm"}
    started = [one for one in found if "ray start --block" in one["arguments"]]
    assert len(started) == 1
    assert ("--head" in started[0]["arguments"]) is (name == "lab1")
    raylets = host.process.filter(comm="raylet")
    assert [one.user for one in raylets] == ["vllm"]
    assert raylets[0].pid in {one["pid"] for one in found}


def test_each_host_has_the_supervisor_it_was_given(host: Host, name: str) -> None:
    unit = host.service("vllm-molecule-chat-ray.service")
    assert unit.exists is (name == "lab1")
    if name == "lab1":
        assert unit.is_running
        # A host that comes back must not start half an engine by itself.
        assert not unit.is_enabled
    else:
        assert [one.user for one in host.process.filter(comm="supervisord")] == ["root"]


def test_ray_counts_the_planned_hosts_at_their_data_addresses(
    host: Host,
    name: str,
    plan: dict[str, Any],
    data_addresses: dict[str, str],
    cluster_dir: str,
    ask: Callable[..., tuple[int, Any]],
) -> None:
    if name != "lab1":
        return
    url = f"http://127.0.0.1:{plan['ports']['dashboard']}/api/v0/nodes"
    status, answer = ask(url, f"{cluster_dir}/secrets/ray_token")
    assert status == 200
    nodes = answer["data"]["result"]["result"]
    assert {node["node_ip"] for node in nodes} == set(data_addresses.values())
    for node in nodes:
        assert node["state"] == "ALIVE"
        assert node["resources_total"]["GPU"] == 1


def test_without_the_token_ray_tells_nothing(
    name: str, plan: dict[str, Any], ask: Callable[..., tuple[int, Any]]
) -> None:
    if name == "lab1":
        status, answer = ask(f"http://127.0.0.1:{plan['ports']['dashboard']}/api/v0/nodes")
        assert status == 401
        assert "node_ip" not in str(answer)


def test_ray_listens_on_the_data_plane_and_on_planned_ports_only(
    host: Host, name: str, plan: dict[str, Any], data_addresses: dict[str, str]
) -> None:
    ports = plan["ports"]
    gcs = f"{data_addresses[name]}:{ports['gcs']}"
    listening = {
        one.removeprefix("tcp://") for one in host.socket.get_listening_sockets() if "tcp" in one
    }
    assert (gcs in listening) is (name == "lab1")
    planned = {*(ports[key] for key in ports), *range(ports["worker_first"], ports["worker_last"])}
    owners = host.check_output("ss --listening --tcp --numeric --processes --no-header")
    ours = [line.split() for line in owners.splitlines() if "sshd" not in line]
    strange = [line for line in ours if int(line[3].rpartition(":")[2]) not in planned]
    assert strange == []
    front = host.ansible.get_variables()["ansible_host"]
    assert not [line for line in ours if line[3].startswith(front)]


def test_the_token_is_in_no_argument_environment_or_log(
    cluster_dir: str, mentions: Callable[[str, str], list[str]]
) -> None:
    assert mentions(f"{cluster_dir}/secrets/ray_token", f"{cluster_dir}/logs") == []
