"""HAProxy runs as the service, behind TLS, and lets in who has a key of a client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

PORT, KEY = 9443, "sk-of-molecule"
# Standard library only: it runs with the Python of the host.
ASK = """
import glob, http.client, json, ssl, sys
address, port, directory, key = sys.argv[1:]
context = ssl.create_default_context(cafile=glob.glob(directory + "/*.crt")[0])
connection = http.client.HTTPSConnection(address, int(port), context=context, timeout=300)
body = json.dumps({"model": "m", "prompt": "p", "max_tokens": 1})
connection.request("POST", "/v1/completions", body, {"Authorization": "Bearer " + key})
answer = connection.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


@pytest.fixture(autouse=True)
def first_host_alone(name: str, request: pytest.FixtureRequest) -> None:
    """Skip on the host that is not the head, but for the test that nothing is there."""
    if name != "lab1" and "no_door" not in request.node.name:
        pytest.skip("the door is on the head")


def test_haproxy_runs_as_the_service_in_a_unit_of_the_cluster(host: Host) -> None:
    assert {one.user for one in host.process.filter(comm="haproxy")} == {"vllm-molecule"}
    assert host.service("vllm-molecule-door").is_running


def test_it_listens_on_the_data_plane_alone(host: Host, data_addresses: dict[str, str]) -> None:
    sockets = host.socket.get_listening_sockets()
    wanted = [f"tcp://{data_addresses['lab1']}:{PORT}"]
    assert [one for one in sockets if one.endswith(f":{PORT}")] == wanted


@pytest.mark.parametrize(("key", "status"), [(KEY, 200), ("another", 401)])
def test_it_opens_with_a_key_of_a_client_alone(
    host: Host, data_addresses: dict[str, str], cluster_dir: str, key: str, status: int
) -> None:
    words = f"{data_addresses['lab1']} {PORT} {cluster_dir}/door/tls {key}"
    done = host.run(f"python3 -c %s {words}", ASK)
    assert json.loads(done.stdout)[0] == status, done.stderr


def test_the_engines_key_is_nowhere_in_its_files(
    cluster_dir: str, mentions: Callable[..., list[str]]
) -> None:
    assert mentions(f"{cluster_dir}/secrets/api_key", f"{cluster_dir}/door") == []


def test_its_secrets_are_the_services_alone(host: Host, cluster_dir: str) -> None:
    (key,) = host.run(f"ls {cluster_dir}/door/tls/*.key").stdout.split()
    for path in (key, f"{cluster_dir}/door/settings/clients.map"):
        found: Any = host.file(path)
        assert (found.user, found.mode) == ("vllm-molecule", 0o600), path


def test_no_door_is_on_the_other_host(host: Host, name: str) -> None:
    if name != "lab1":
        assert not host.process.filter(comm="haproxy")
