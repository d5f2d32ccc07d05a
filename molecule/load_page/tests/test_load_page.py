"""The page is on the head, behind TLS; whatever else lies behind it asks for the key."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import pytest
from testinfra.host import Host

PORT = 8443
# Standard library only: it runs with the Python of the head, whose certificate signs itself.
ASK = """
import http.client, json, ssl, sys, time
address, port, certificate, token_file, method, path, body = sys.argv[1:]
context = ssl.create_default_context(cafile=certificate)
connection = http.client.HTTPSConnection(address, int(port), context=context, timeout=120)
headers = {"Content-Type": "application/json"}
if token_file:
    headers["Authorization"] = "Bearer " + open(token_file).read().strip()
connection.request(method, path, body or None, headers)
answer = connection.getresponse()
pieces = []
while line := answer.readline():
    pieces.append([time.monotonic(), line.decode()])
print(json.dumps([answer.status, dict(answer.getheaders()), pieces]))
"""
# So many at once, each long enough to meet all others.
CROWD = """
import http.client, json, ssl, sys, threading
address, port, certificate, token_file, path, body, number = sys.argv[1:]
context = ssl.create_default_context(cafile=certificate)
headers = {"Content-Type": "application/json"}
headers["Authorization"] = "Bearer " + open(token_file).read().strip()
found = []
def ask():
    connection = http.client.HTTPSConnection(address, int(port), context=context, timeout=120)
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    found.append([answer.status, answer.read().decode()])
threads = [threading.Thread(target=ask) for _ in range(int(number))]
for one in threads: one.start()
for one in threads: one.join()
print(json.dumps(found))
"""
MOST = 6
LONG = (
    '{"model": "smollm2-135m-instruct", "max_tokens": 24, "ignore_eos": true,'
    ' "messages": [{"role": "user", "content": "Count."}]}'
)
QUESTION = (
    '{"model": "smollm2-135m-instruct", "max_tokens": 16, "temperature": 0, "stream": true,'
    ' "messages": [{"role": "user", "content": "What is the capital of France?"}]}'
)
LOCKED = ("/engines.json", "/engines/chat/v1/models", "/engines/chat/v1/no/such/path")
ABSENT = (
    *("/metrics", "/health", "/engines/chat/metrics", "/engines/chat/v1/../metrics"),
    *("/engines/chat/v1/%2e%2e/metrics", "/engines/other/v1/models", "/nginx.conf", "/key"),
    *("/../nginx.conf", "/%2e%2e/nginx.conf", "/complete", "/tls/"),
)
Asked = tuple[int, dict[str, str], list[tuple[float, str]]]


@pytest.fixture(autouse=True)
def head_alone(name: str, request: pytest.FixtureRequest) -> None:
    """Skip on hosts that are not the head, but for the test that nothing is there."""
    if name != "lab1" and "no_page" not in request.node.name:
        pytest.skip("the page is on the head")


@pytest.fixture
def certificate(host: Host, cluster_dir: str) -> str:
    return host.check_output(f"ls {cluster_dir}/load_page/tls/*.crt")


@pytest.fixture
def fetch(
    python: Callable[..., Any], certificate: str, data_addresses: dict[str, str], cluster_dir: str
) -> Callable[..., Asked]:
    """Return a way to ask the page's address: status, headers, lines with their times."""

    def ask(path: str, method: str = "GET", body: str = "", key: str = "") -> Asked:
        token = f"{cluster_dir}/secrets/{key}" if key else ""
        words = [data_addresses["lab1"], str(PORT), certificate, token, method, path, body]
        status, headers, pieces = python(ASK, *words)
        return status, {name.lower(): value for name, value in headers.items()}, pieces

    return ask


def test_nginx_runs_as_the_service_in_a_unit_of_the_cluster(host: Host) -> None:
    # By name: nginx writes its title over the environment that marks processes of ours.
    found = host.process.filter(comm="nginx")
    assert {one.user for one in found} == {"vllm-molecule"}
    unit = "vllm-molecule-load-page.service"
    assert int(host.check_output(f"systemctl show --value --property=MainPID {unit}")) in {
        one.pid for one in found
    }


def test_the_server_of_the_distribution_neither_runs_nor_will(host: Host) -> None:
    assert not host.service("nginx").is_running
    assert not host.service("nginx").is_enabled
    assert not host.socket("tcp://80").is_listening


def test_it_listens_on_the_data_plane_alone(host: Host, data_addresses: dict[str, str]) -> None:
    found = [one for one in host.socket.get_listening_sockets() if one.endswith(f":{PORT}")]
    assert found == [f"tcp://{data_addresses['lab1']}:{PORT}"]


def test_the_page_comes_with_a_policy_that_lets_nothing_else_in(
    fetch: Callable[..., Asked],
) -> None:
    status, headers, lines = fetch("/")
    assert status == 200
    assert "<title>Load test</title>" in "".join(text for _, text in lines)
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} <= set(policy)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["server"] == "nginx"
    for file, kind in (("main.js", "text/javascript"), ("page.css", "text/css")):
        status, headers, _ = fetch(f"/{file}")
        assert (status, headers["content-type"].partition(";")[0]) == (200, kind)


@pytest.mark.parametrize("key", ["", "ray_token"])
@pytest.mark.parametrize("path", LOCKED)
def test_without_the_key_there_is_nothing_else(
    fetch: Callable[..., Asked], path: str, key: str
) -> None:
    status, _, lines = fetch(path, key=key)
    assert status == 401
    assert "smollm" not in str(lines)


@pytest.mark.parametrize("path", ABSENT)
def test_with_the_key_there_is_no_more_than_is_offered(
    fetch: Callable[..., Asked], path: str
) -> None:
    assert fetch(path, key="api_key")[0] in (400, 404)


@pytest.mark.parametrize("path", ["/", "/main.js", "/engines/chat/v1/models"])
def test_other_methods_are_refused(fetch: Callable[..., Asked], path: str) -> None:
    assert fetch(path, "DELETE", key="api_key")[0] in (403, 405)


def test_an_answer_streams_through_it(fetch: Callable[..., Asked]) -> None:
    # Held back by a buffer, all would come at the end, each time, but for one pause or two in which
    # who reads is given no time.
    for _ in range(10):
        status, headers, lines = fetch(
            "/engines/chat/v1/chat/completions", "POST", QUESTION, "api_key"
        )
        assert (status, headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        events = [(at, text) for at, text in lines if text.startswith("data: {")]
        assert "Paris" in "".join(text for _, text in events)
        pause = median(later - former for (former, _), (later, _) in pairwise(events))
        if pause > 0.001:
            break
    assert pause > 0.001


def test_more_requests_than_are_let_through_are_told_the_number(
    python: Callable[..., Any], certificate: str, data_addresses: dict[str, str], cluster_dir: str
) -> None:
    words = [data_addresses["lab1"], str(PORT), certificate, f"{cluster_dir}/secrets/api_key"]
    path = "/engines/chat/v1/chat/completions"
    wanted = [200] * MOST + [429] * 2
    # Who asks may be given no time between two of them, and the first are answered then.
    for _ in range(10):
        answers = python(CROWD, *words, path, LONG, str(MOST + 2))
        if sorted(status for status, _ in answers) == wanted:
            break
    refused = [text for status, text in answers if status == 429]
    assert sorted(status for status, _ in answers) == wanted
    assert all("load_page_most_requests" in text and f" {MOST} " in text for text in refused)


def test_the_list_of_engines_tells_no_address(
    fetch: Callable[..., Asked], data_addresses: dict[str, str]
) -> None:
    status, _, lines = fetch("/engines.json", key="api_key")
    told = "".join(text for _, text in lines)
    assert status == 200
    assert "smollm2-135m-instruct" in told
    assert data_addresses["lab1"] not in told


def test_plain_http_is_refused(
    ask: Callable[..., tuple[int, Any]], data_addresses: dict[str, str]
) -> None:
    assert ask(f"http://{data_addresses['lab1']}:{PORT}/")[0] == 400


def test_the_key_of_the_certificate_is_the_services_own(
    certificate: str, owned: Callable[[str, str, int], None], cluster_dir: str
) -> None:
    owned(certificate.removesuffix("crt") + "key", "vllm-molecule", 0o600)
    owned(f"{cluster_dir}/load_page/tls", "root", 0o750)


def test_the_key_is_in_no_argument_environment_log_or_configuration(
    cluster_dir: str, mentions: Callable[[str, str], list[str]]
) -> None:
    for directory in ("logs", "load_page"):
        assert mentions(f"{cluster_dir}/secrets/api_key", f"{cluster_dir}/{directory}") == []


def test_no_page_is_on_other_hosts(host: Host, name: str, cluster_dir: str) -> None:
    if name != "lab1":
        assert not host.file(f"{cluster_dir}/load_page").exists
        assert not host.file("/usr/sbin/nginx").exists
