"""The real programs over loopback: only who has the key is answered, and nothing is left."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from vllm_ansible.node.failure import Failure
from vllm_ansible.node.launcher import stat_of
from vllm_ansible.node.reach import (
    connect as reach_connect,
)
from vllm_ansible.node.reach import (
    exchange as reach_exchange,
)
from vllm_ansible.node.reach import (
    ports as reach_ports,
)
from vllm_ansible.node.reach import wire

SOURCE = Path(__file__).parents[4] / "src"
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def measure(node_python: str) -> Run:
    def run(address: str = "127.0.0.1", **more: Any) -> dict[str, Any]:
        *ports, closed = free_ports(4, address)
        request = {"address": address, "ports": ports, "closed": closed}
        request |= {"key": "one", "other": "one", "ahead": 0, "starved": 0, **more}
        done = subprocess.run(
            [node_python, str(Path(__file__).with_name("driver.py"))],
            input=json.dumps(request),
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return {"closed": closed, **json.loads(done.stdout)}

    return run


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_peer_is_measured_and_a_closed_port_is_refused(measure: Run, address: str) -> None:
    found = measure(address)
    assert found["blocked"] == {"refused": [[found["closed"], found["closed"]]]}
    assert found["source"] == address
    assert 5 < found["round_trip_us"] < 1_000_000
    assert abs(found["clock_offset_seconds"]) <= found["clock_uncertainty_seconds"] + 0.001
    loss = found["loss"]
    assert loss["sent"] == loss["arrived"] + loss["dropped_there"] == 400
    assert loss["arrived"] == loss["returned"] + loss["dropped_here"]


def test_datagrams_that_a_starved_peer_had_not_read_are_not_lost(measure: Run) -> None:
    loss = measure(starved=1.5)["loss"]
    assert loss["sent"] == loss["arrived"] + loss["dropped_there"] == 400
    assert loss["arrived"] == loss["returned"] + loss["dropped_here"]


def test_a_clock_that_is_ahead_is_measured_to_within_its_uncertainty(measure: Run) -> None:
    found = measure(ahead=5 * 10**9)
    assert found["clock_offset_seconds"] == pytest.approx(
        5, abs=found["clock_uncertainty_seconds"] + 0.001
    )
    assert found["clock_uncertainty_seconds"] < 1


def test_another_key_gets_no_answer(measure: Run) -> None:
    found = measure(other="another")
    assert "round_trip_us" not in found and "loss" not in found
    assert re.search("reset|closed", found["silent"])


def responder_arguments(tmp_path: Path, *ports: int, **more: Any) -> dict[str, Any]:
    key_file = tmp_path / "ray_token"
    key_file.write_text("the secret of a test, of no use elsewhere\n")
    where = {"cluster_dir": str(tmp_path), "tasks_dir": str(tmp_path / "tasks")}
    begin = {
        "address": "127.0.0.1",
        "ports": [list(ports)] if ports else [],
        "key_file": str(key_file),
    }
    return {**where, **(begin if more.get("state") != "stopped" else {}), **more}


@pytest.fixture
def responder(run_module: Callable[..., dict[str, Any]], tmp_path: Path) -> Iterator[Run]:
    """Start the real module's responder; it ends with the test."""

    def start(*ports: int, check: bool = False, **more: Any) -> dict[str, Any]:
        arguments = responder_arguments(tmp_path, *ports, **more)
        return run_module("reach_responder", arguments, [], check)

    yield start
    start(state="stopped")


def pids(directory: Path) -> set[int]:
    """Return the keeper and the responder that the status tells of."""
    status = json.loads((directory / "tasks" / "reach.json").read_text())
    return {status["pid"], status["process"]["pid"]}


def alive(numbers: set[int]) -> set[int]:
    return {pid for pid in numbers if (stat := stat_of(pid)) and stat.state not in "ZX"}


def test_what_is_stopped_leaves_no_process_no_port_and_no_file(
    responder: Run, tmp_path: Path
) -> None:
    ports = free_ports(2)
    begun = responder(*ports)["responder"]
    assert begun["own"] == begun["strangers"] == []
    assert begun["answers"][0] in begun["kernel"] and len(begun["kernel"]) == 3
    started = pids(tmp_path)
    assert alive(started) == started
    assert "the secret of a test" not in (tmp_path / "tasks" / "reach.json").read_text()
    end = responder(state="stopped")
    assert (end["answered"], end["changed"]) == (True, True)
    assert alive(started) == set()
    assert all(reach_ports.free("127.0.0.1", port) for port in [*ports, *begun["kernel"]])
    assert [path.name for path in (tmp_path / "tasks").iterdir()] == [".lock"]
    end = responder(state="stopped")
    assert (end["answered"], end["changed"]) == (False, False)


def test_it_ends_by_itself_and_that_is_told(responder: Run, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    responder(port, life_seconds=0.5)
    started = pids(tmp_path)
    deadline = time.monotonic() + 60
    while alive(started):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert reach_ports.free("127.0.0.1", port)
    assert responder(state="stopped")["answered"] is False


def test_a_second_start_replaces_the_first(responder: Run, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    responder(port)
    first = pids(tmp_path)
    assert responder(port)["responder"]["strangers"] == []
    assert alive(first) == set()
    assert len(alive(pids(tmp_path))) == 2


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_somebody_takes_in_between_is_left_to_them(
    responder: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: socket.SocketKind
) -> None:
    (port,) = free_ports(1)
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            other.listen()
        looked: list[list[int]] = []

        def late(address: str, count: int, planned: set[int]) -> list[int]:
            found = reach_ports.of_the_kernel(address, count, planned)
            looked.append(found if looked else [*found[:-1], other.getsockname()[1]])
            return looked[-1]

        monkeypatch.setattr("reach_responder.of_the_kernel", late)
        begun = responder(port)["responder"]
        # A third look where one of the second was taken, too: other tests run beside this one.
        assert begun["kernel"] == looked[-1] and len(looked) >= 2
        assert other.getsockname()[1] not in begun["kernel"]
        assert len(alive(pids(tmp_path))) == 2
        monkeypatch.setattr("reach_responder.of_the_kernel", lambda *_: [other.getsockname()[1]])
        failed = responder(port)
        assert failed["failed"] and str(other.getsockname()[1]) in failed["found"]


def test_a_stranger_on_a_planned_port_is_named_and_left_alone(responder: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        begun = responder(port)["responder"]
    (stranger,) = begun["strangers"]
    assert (stranger["port"], stranger["pid"]) == (port, os.getpid())
    assert f"(process {os.getpid()} of " in stranger["who"]
    assert port not in begun["answers"] and [port, port] in begun["ports"]


def test_a_port_of_our_own_process_is_known_by_its_record(responder: Run, tmp_path: Path) -> None:
    record = tmp_path / "processes" / "chat-serve.json"
    record.parent.mkdir()
    record.write_text("{}")
    serve = "import socket; s = socket.create_server(('127.0.0.1', 0))"
    program = f"{serve}; print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={"VLLM_ANSIBLE_PROCESS": str(record)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        (other,) = free_ports(1)
        begun = responder(port, other)["responder"]
        process.communicate("\n")
    assert (begun["own"], begun["strangers"]) == ([port], [])
    # The engine runs and may want its other port at any moment.
    assert begun["left"] == [[other, other]]
    assert other not in [*begun["answers"], *reach_ports.unfold(begun["ports"])]
    assert port in reach_ports.unfold(begun["ports"])


def test_check_mode_starts_nothing(responder: Run, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    assert responder(port, check=True)["changed"]
    assert not (tmp_path / "tasks").exists()


def test_a_connection_that_says_nothing_or_too_much_gets_nothing(responder: Run) -> None:
    (port,) = free_ports(1)
    responder(port)
    for words in (b"", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"x" * 64):
        with socket.create_connection(("127.0.0.1", port), timeout=0.3) as client:
            client.sendall(words)
            try:
                assert client.recv(64) == b""
            except OSError:  # a reset, or silence until the time is over
                continue


def test_datagrams_without_a_session_get_no_echo(responder: Run) -> None:
    (port,) = free_ports(1)
    begun = responder(port)["responder"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(0.3)
        client.sendto(wire.DATAGRAM.pack(b"s" * 16, 1), ("127.0.0.1", begun["kernel"][-1]))
        with pytest.raises(TimeoutError):
            client.recv(64)


def test_nobody_listens_where_the_address_is_not_of_this_host() -> None:
    with pytest.raises(Failure) as caught:
        reach_ports.listen("192.0.2.1", 20000)
    assert "ip -brief address" in caught.value.details["fix"]


def test_more_connections_than_files_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach_connect, "MOST_AT_ONCE", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        targets = [("127.0.0.1", port), *(("127.0.0.1", one) for one in free_ports(9))]
        found = reach_connect.connect_all(targets, 20.0)
    assert found.pop(("127.0.0.1", port)) == "connected"
    assert set(found.values()) == {"refused"} and len(found) == 9


def test_an_answer_that_does_not_prove_the_key_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            try:
                client, _ = server.accept()
                client.sendall(bytes(wire.WELCOME_BYTES))
                while client.recv(4096):  # until the other side has gone, or has reset it
                    continue
            finally:
                os._exit(0)
        with pytest.raises(reach_exchange.NoAnswer, match="does not prove the cluster's key"):
            reach_exchange.meet(b"key", "127.0.0.1", port, 20.0)
        os.waitpid(pid, 0)


def test_the_key_is_of_this_use_alone(tmp_path: Path) -> None:
    path = tmp_path / "ray_token"
    path.write_text("secret\n")
    key = wire.key_from(str(path))
    assert b"secret" not in key and len(key) == 32
    path.write_text("\n")
    with pytest.raises(Failure, match="an empty file"):
        wire.key_from(str(path))


def test_ports_are_folded_and_unfolded() -> None:
    assert reach_ports.fold([3, 1, 2, 9, 2]) == [[1, 3], [9, 9]]
    assert reach_ports.unfold([[1, 3], [9, 9]]) == [1, 2, 3, 9]
