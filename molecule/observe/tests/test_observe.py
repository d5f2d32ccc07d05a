"""On each host the node exporter runs as the service, and answers to its key alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from testinfra.host import Host

PORT = 29702
FILES = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "observed"
# Standard library only: it runs with the Python of the host.
ASK = """
import base64, json, sys, urllib.error, urllib.request
url, key = sys.argv[1:]
request = urllib.request.Request(url)
word = base64.b64encode(("observe:" + key).encode()).decode()
request.add_header("Authorization", "Basic " + word)
try:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=300) as answer:
        print(json.dumps([answer.status, answer.read().decode()]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, ""]))
"""


def ask(host: Host, address: str, key: str) -> tuple[int, str]:
    done = host.run("python3 -c %s %s %s", ASK, f"http://{address}:{PORT}/metrics", key)
    status, text = json.loads(done.stdout)
    return status, text


def test_the_node_exporter_is_the_services_and_listens_on_the_data_plane(
    host: Host, name: str, data_addresses: dict[str, str]
) -> None:
    # The kernel cuts the name of a program after 15 letters.
    assert {one.user for one in host.process.filter(comm="prometheus-node")} == {"vllm-molecule"}
    sockets = host.socket.get_listening_sockets()
    assert [one for one in sockets if one.endswith(f":{PORT}")] == [
        f"tcp://{data_addresses[name]}:{PORT}"
    ]


def test_it_tells_what_the_host_knows_to_whoever_has_the_key(
    host: Host, name: str, data_addresses: dict[str, str]
) -> None:
    key = (FILES / "key").read_text().strip()
    assert ask(host, data_addresses[name], "wrong")[0] == 401
    status, text = ask(host, data_addresses[name], key)
    assert status == 200 and "vllm_written_timestamp_seconds" in text
    assert ('vllm_limit_first_token_seconds{engine="alone"} 10' in text) == (name == "lab1")


def test_the_distributions_own_service_does_not_run(host: Host) -> None:
    assert len(host.process.filter(comm="prometheus-node")) == 1


def test_a_prometheus_of_another_user_reads_targets_and_rules_and_no_key(
    data_addresses: dict[str, str],
) -> None:
    listed: list[dict[str, Any]] = json.loads((FILES / "targets.json").read_text())
    found = {(one["labels"]["job"], one["targets"][0]) for one in listed}
    nodes = {("node", f"{address}:{PORT}") for address in data_addresses.values()}
    assert found >= nodes | {("vllm", f"{data_addresses['lab1']}:8006")}
    for path in FILES.iterdir():
        private = path.name in ("key", "api_key")
        assert path.stat().st_mode & 0o777 == (0o600 if private else 0o644), path
    wanted = {"targets.json", "rules.yml", "dashboard.json", "scrape.yml", "key", "api_key"}
    assert {path.name for path in FILES.iterdir()} == wanted
