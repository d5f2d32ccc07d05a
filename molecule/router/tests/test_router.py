"""HAProxy runs as the service, on the data plane alone, and lets in who has the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

PORT = 8005
BODY = {"model": "m", "prompt": "p", "max_tokens": 1}


@pytest.fixture(autouse=True)
def first_host_alone(name: str, request: pytest.FixtureRequest) -> None:
    """Skip on the host that is not the engine's first, but for the test that nothing is there."""
    if name != "lab1" and "no_router" not in request.node.name:
        pytest.skip("the router is on the first host")


def test_haproxy_runs_as_the_service_in_a_unit_of_the_cluster(host: Host) -> None:
    found = host.process.filter(comm="haproxy")
    assert {one.user for one in found} == {"vllm-molecule"}
    assert host.service("vllm-molecule-pair-router").is_running
    assert host.service("vllm-molecule-pair-watch").is_running


def test_the_server_of_the_distribution_neither_runs_nor_will(host: Host) -> None:
    assert not host.service("haproxy").is_running
    assert not host.service("haproxy").is_enabled


def test_it_listens_on_the_data_plane_alone(host: Host, data_addresses: dict[str, str]) -> None:
    sockets = host.socket.get_listening_sockets()
    assert [one for one in sockets if one.endswith(f":{PORT}")] == [
        f"tcp://{data_addresses['lab1']}:{PORT}"
    ]
    assert [one for one in sockets if one.endswith(":20516")] == ["tcp://127.0.0.1:20516"]


def test_both_ranks_answer_behind_it_and_nobody_without_the_key(
    ask: Callable[..., tuple[int, Any]], data_addresses: dict[str, str], cluster_dir: str
) -> None:
    url = f"http://{data_addresses['lab1']}:{PORT}"
    assert ask(f"{url}/v1/completions", "", BODY)[0] == 401
    key = f"{cluster_dir}/secrets/api_key"
    assert ask(f"{url}/v1/completions", key, BODY)[0] == 200
    status, text = ask(f"{url}/metrics", key)
    assert status == 200
    for rank in ("rank-0", "rank-1"):
        assert f'haproxy_server_status{{proxy="ranks",server="{rank}",state="UP"}} 1' in str(text)


def test_the_keys_are_the_services_alone(
    host: Host, cluster_dir: str, mentions: Callable[..., list[str]]
) -> None:
    directory = f"{cluster_dir}/routers/pair"
    found = mentions(f"{cluster_dir}/secrets/api_key", directory)
    assert sorted(found) == [f"{directory}/clients.keys", f"{directory}/keys.cfg"]
    for path in found:
        file = host.file(path)
        assert (file.mode, file.user) == (0o600, "vllm-molecule")


def test_no_router_is_on_another_host(host: Host, name: str) -> None:
    if name != "lab1":
        assert not host.process.filter(comm="haproxy")
        assert not host.file("/etc/systemd/system/vllm-molecule-pair-router.service").exists
