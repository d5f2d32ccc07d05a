"""What is true of a served cluster on this machine, without touching it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .clone import Clone
from .conftest import Site, greedy_texts
from .processes import everything, identities, listeners, listing, of_cluster, untouched

pytestmark = pytest.mark.engine
LARGE = ("environments", "models", "tools")
OPEN = {("get", "/health"), ("get", "/metrics"), ("get", "/ping")}


def ask(port: int, method: str, path: str, key: str | None = None) -> tuple[int, bytes]:
    """Return status and body of a request with a key or without."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = b"{}" if method == "post" else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        connection.request(
            method.upper(), path, body, {"Content-Type": "application/json", **headers}
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def holding(secrets: dict[str, str], files: list[Path]) -> list[str]:
    """Return the files that hold one of the secrets."""
    return [
        f"{name} in {path}"
        for path in files
        if path.is_file()
        for name, secret in secrets.items()
        if secret.encode() in path.read_bytes()
    ]


def test_the_second_run_changes_nothing_and_shows_no_secret_at_its_most_talkative(
    served: Site,
) -> None:
    before = identities(served.cluster_dir)
    ran = served.run("-vvv")
    assert ran.status == 0, ran.output
    assert ran.changed == []
    assert "changed=0" in ran.output
    untouched(served.cluster_dir, before)
    assert "EXEC /bin/sh" in ran.output, "the output is not at its most talkative"
    assert [name for name, secret in served.secrets.items() if secret in ran.output] == []


def test_a_check_of_a_converged_host_finds_nothing_to_do_and_touches_nothing(served: Site) -> None:
    processes, files = identities(served.cluster_dir), listing(served.cluster_dir)
    ran = served.run("--check")
    assert ran.status == 0, ran.output
    assert ran.changed == []
    assert "would change" not in ran.output
    assert listing(served.cluster_dir) == files
    untouched(served.cluster_dir, processes)


def test_logs_show_what_every_process_wrote_last_and_change_nothing(served: Site) -> None:
    ran = served.run("-e", "logs_lines=400", playbook="playbooks/logs.yml")
    assert ran.status == 0, ran.output
    assert ran.changed == []
    assert "Application startup complete" in ran.output
    for name in ("chat-ray", "chat-serve"):
        assert f"here {name} | " in ran.output


def test_no_secret_is_in_an_argument_or_an_environment(served: Site) -> None:
    found = [
        f"{name} in the {where} of {process.pid}"
        for process in everything()
        for where in ("arguments", "environment")
        for name, secret in served.secrets.items()
        if secret in getattr(process, where)
    ]
    assert found == []
    # Both engines were looked at: their processes are among those of the cluster.
    told = " ".join(process.arguments for process in of_cluster(served.cluster_dir))
    assert all(f"--port {one['port']}" in told for one in served.variables["engines"])


def test_no_secret_is_in_a_log_a_record_or_a_file_that_others_may_read(served: Site) -> None:
    kept = [
        path
        for path in served.cluster_dir.rglob("*")
        if path.relative_to(served.cluster_dir).parts[0] not in LARGE
    ]
    private = {path for path in kept if path.parent.name == "secrets" or path.name == "key.yaml"}
    for path in [*private, *served.state.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert {path.parent.name for path in private} == {"secrets", "chat", "experts"}
    written = [path for path in kept if path not in private]
    assert any(path.name == "chat-serve.log" for path in written)
    written += [*served.run_dir.rglob("*"), *(served.clone.directory / "runs").rglob("*")]
    assert any(path.name == "events.jsonl" for path in written)
    assert any(path.name.startswith("raylet") for path in written)
    assert holding(served.secrets, written) == []


def test_all_ports_are_planned_ones_on_loopback(served: Site) -> None:
    plan = json.loads((served.cluster_dir / "plan.json").read_text())
    planned = set()
    for engine in plan["engines"]:
        ports = engine["ports"]
        planned |= {*ports.values(), *range(ports["worker_first"], ports["worker_last"] + 1)}
    found = listeners(served.cluster_dir)
    assert {one for one in found if one[0] != "127.0.0.1"} == set()
    # The collectives of torch listen where the kernel lets them; there is no option for it.
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert {port for _, port in found if port < first} - planned == set()
    api = {engine["ports"]["api"] for engine in plan["engines"]}
    assert api <= {port for _, port in found}


@pytest.mark.parametrize("place", [0, 1], ids=["ray", "mp"])
def test_every_path_of_the_api_but_health_and_metrics_asks_for_the_key(
    served: Site, place: int
) -> None:
    port, key = served.variables["engines"][place]["port"], served.secrets["api_key"]
    code, schema = ask(port, "get", "/openapi.json", key)
    assert code == 200
    paths = json.loads(schema)["paths"]
    routes = {(method, path) for path, methods in paths.items() for method in methods}
    assert ("post", "/invocations") in routes
    assert ("post", "/v1/chat/completions") in routes
    routes |= {("get", "/openapi.json"), ("get", "/docs"), ("get", "/no/such/path")}
    for stranger in (None, "f" * 43, key[:-1]):
        answers = {route: ask(port, *route, stranger)[0] for route in routes}
        assert {route for route, code in answers.items() if code != 401} == OPEN
    assert ask(port, "get", "/v1/models", key)[0] == 200


def test_every_port_of_ray_asks_for_its_token(served: Site) -> None:
    """Only what Prometheus reads is open, and that on loopback alone."""
    plan = json.loads((served.cluster_dir / "plan.json").read_text())
    ports = plan["engines"][0]["ports"]
    metrics = {ports[name] for name in ("metrics", "autoscaler_metrics", "dashboard_metrics")}
    wanted = sorted(
        [list(one) for one in listeners(served.cluster_dir) if ports["gcs"] <= one[1] < 26100]
    )
    assert {ports[name] for name in ("gcs", "dashboard", "client", "node_manager")} <= {
        port for _, port in wanted
    }
    asked = subprocess.run(
        [served.python, Path(__file__).with_name("grpc_probe.py"), json.dumps(wanted)],
        capture_output=True,
        text=True,
        check=True,
    )
    let_in = [
        answer
        for answer in json.loads(asked.stdout)
        if answer["port"] not in metrics
        and answer["open"]
        and (answer["http"] in range(200, 300) or "OK" in answer["grpc"].values())
    ]
    assert let_in == []


def test_the_likeliest_tokens_are_the_same_each_time(
    served: Site, one_process_texts: dict[str, Any]
) -> None:
    again = greedy_texts(served)
    assert again == one_process_texts
    assert {len(text["tokens"]) for text in again.values()} == {32}
    assert "Paris" in again["chat"]["text"]


# A minute and a half each: the one that has to fetch the keys, the other in make soak.
@pytest.mark.parametrize(
    "with_state",
    [
        pytest.param(True, id="with state", marks=pytest.mark.soak),
        pytest.param(False, id="without state"),
    ],
)
def test_another_clone_takes_over(served: Site, tmp_path: Path, with_state: bool) -> None:
    shutil.rmtree(served.clone.directory / "runs", ignore_errors=True)
    before = identities(served.cluster_dir)
    other = Clone(tmp_path / "clone")
    inventory = other.inventory("flow", served.hosts, **served.variables)
    state = other.directory / "state" / served.name
    if with_state:
        shutil.copytree(served.state, state)
    ran = other.run(inventory)
    assert ran.status == 0, ran.output
    untouched(served.cluster_dir, before)
    taken = {path.name: path.read_text() for path in state.iterdir()}
    assert taken == {path.name: path.read_text() for path in served.state.iterdir()}
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o700
    # The keys that came from the head are new to this clone, and to nothing else.
    fetched = [] if with_state else ["See that the cluster's keys exist (here)"]
    assert ran.changed == fetched
