"""One Ray cluster of exactly the planned hosts, closed to everybody without its token."""

from collections.abc import Callable
from typing import Any

from testinfra.host import Host


def test_each_host_runs_one_node_as_the_service(
    host: Host, name: str, family: Callable[[str], list[dict[str, Any]]]
) -> None:
    found = family("chat-ray")
    assert {one["user"] for one in found} == {"vllm-molecule"}
    started = [one for one in found if "ray start --block" in one["arguments"]]
    assert len(started) == 1
    assert ("--head" in started[0]["arguments"]) is (name == "lab1")
    raylets = host.process.filter(comm="raylet")
    assert [one.user for one in raylets] == ["vllm-molecule"]
    assert raylets[0].pid in {one["pid"] for one in found}


def test_each_host_has_the_supervisor_it_was_given(host: Host, name: str) -> None:
    unit = host.service("vllm-molecule-chat-ray.service")
    assert unit.exists is (name == "lab1")
    if name == "lab1":
        assert unit.is_running
        # A host that comes back must not start half an engine by itself.
        assert "WantedBy" not in host.check_output("systemctl cat vllm-molecule-chat-ray.service")
    found = [one for one in host.process.filter() if "-m supervisor.supervisord" in one.args]
    assert [one.user for one in found] == ([] if name == "lab1" else ["root"])


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


def test_ray_listens_on_planned_ports_only_and_its_dashboard_on_loopback(
    host: Host, name: str, plan: dict[str, Any]
) -> None:
    ports = plan["ports"]
    planned = {*ports.values(), *range(ports["worker_first"], ports["worker_last"] + 1)}
    # The addresses are Ray's own choice: docs/evidence.md, known gaps.
    said = host.check_output("ss --listening --tcp --numeric --no-header").splitlines()
    listening = [line.split()[3].rpartition(":") for line in said]
    assert {int(port) for _, _, port in listening} - {22} <= planned
    dashboards = [address for address, _, port in listening if int(port) == ports["dashboard"]]
    assert dashboards == (["127.0.0.1"] if name == "lab1" else [])


def test_the_token_is_in_no_argument_environment_or_log(
    cluster_dir: str, mentions: Callable[[str, str], list[str]]
) -> None:
    assert mentions(f"{cluster_dir}/secrets/ray_token", f"{cluster_dir}/logs") == []
