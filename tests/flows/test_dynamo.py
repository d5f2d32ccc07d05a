"""Real Dynamo, etcd and NATS before two real engines on this machine, whole and harmed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

from .clone import MINUTE, REPOSITORY, wait_until
from .conftest import CHAT, Site, one_site
from .dynamo import MODEL, Load, Stream, chat, programs, routed, status, streams, told
from .processes import listeners, look, of_cluster

pytestmark = [
    pytest.mark.engine,
    pytest.mark.soak,
    pytest.mark.skipif(not Path("/usr/sbin/haproxy").exists(), reason="no haproxy on this machine"),
]
OURS = {"chat-dynamo", "chat-etcd", "chat-nats", "chat-sidecar-0", "chat-sidecar-1"}
# What Dynamo, its stores and its sidecars listen on, and the two engines' HTTP and gRPC.
STORES = {28001, 28002, 28003}
RANKS = (28020, 28021)
PORTS = STORES | {28020, 28021, 28040, 28041, 28060, 28061, 28080, 28081}


class Fronted(Site):
    """A cluster of this machine with one engine of two data ranks behind Dynamo."""

    url = "http://127.0.0.1:28015/v1"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "fronted")
        found = programs(directory)
        two = {"port": 28015, "layout": {"data": 2, "tensor": 1}}
        self.engine = {**CHAT, **two, **found.engine}
        self.variables |= {**found.variables, "accelerator_count": 2, "port_base": 28000}
        self.change("dynamo")

    @property
    def recorded(self) -> set[str]:
        """The processes that the host has a record of."""
        names = [path.name for path in (self.cluster_dir / "processes").glob("*.json")]
        return {name.removesuffix(".json") for name in names if not name.endswith(".state.json")}

    def change(self, front: str) -> None:
        """Write another front into the inventory."""
        self.variables["engines"] = [{**self.engine, "front": front}]
        self.inventory = self.clone.inventory("flow", self.hosts, **self.variables)

    def kill(self, name: str, sign: signal.Signals = signal.SIGKILL) -> int:
        """Send a process a signal; return its number."""
        pid = self.pid(name)
        os.kill(pid, sign)
        return pid

    def back(self, name: str, before: int) -> None:
        """Wait until the supervisor has started a process again."""
        wait_until(lambda: self.pid(name) != before and look(self.pid(name)), MINUTE, name)


@pytest.fixture(scope="module")
def fronted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronted]:
    with one_site(tmp_path_factory, "fronted", Fronted) as made:
        yield made


@pytest.fixture(scope="module")
def whole(fronted: Fronted) -> list[Stream]:
    """Return what the streams say where nothing is harmed."""
    found = streams(fronted.url, fronted.key, MODEL)
    assert all(one.whole for one in found), found
    return found


def answers(port: int) -> bool:
    """Tell whether anything listens at a port of this machine."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def served(fronted: Fronted, times: int = 6) -> set[int]:
    return {
        status(fronted.url, fronted.key, chat(MODEL, f"{number} ships", 4))
        for number in range(times)
    }


def test_repeats_go_to_the_engine_that_has_them_in_its_cache(fronted: Fronted) -> None:
    found = routed(fronted.run())
    assert found["workers"] == 2
    assert found["events"] > 0
    assert len({one.index(max(one)) for one in found["repeats"]}) == 1, found
    assert all(max(one) >= 2 * found["block_size"] for one in found["repeats"])
    assert served(fronted) == {200}
    assert status(fronted.url, "another", chat(MODEL, "a ship", 4)) == 401


@pytest.fixture
def least_connections(tmp_path: Path) -> Iterator[str]:
    """Return an address that takes the engine with the fewest requests, as the router does."""
    port = free_port("127.0.0.1")
    servers = "".join(f"  server rank{rank} 127.0.0.1:{rank}\n" for rank in RANKS)
    (tmp_path / "haproxy.cfg").write_text(
        "defaults\n  mode http\n  timeout connect 10s\n  timeout client 10m\n"
        f"  timeout server 10m\nlisten least\n  bind 127.0.0.1:{port}\n"
        f"  balance leastconn\n{servers}"
    )
    words = ["/usr/sbin/haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg")]
    with subprocess.Popen(words) as process:
        wait_until(lambda: answers(port), MINUTE, "HAProxy")
        yield f"http://127.0.0.1:{port}/v1"
        process.terminate()


def conversations(fronted: Fronted, url: str) -> dict[str, Any]:
    """Return what five clients saw that talk at once, each in six turns."""
    asked = [url, MODEL, fronted.state / "api_key", ",".join(map(str, RANKS))]
    sizes = ["--users=5", "--turns=6", "--first=200", "--more=30", "--tokens=12"]
    words = [sys.executable, REPOSITORY / "benchmarks/device/turns.py", *asked, *sizes]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    print(url, done.stdout)
    assert (found["answers"], found["failures"]) == (30, 0)
    return found


def test_conversations_stay_where_their_beginning_is_cached(
    fronted: Fronted, least_connections: str
) -> None:
    """Both ways before the same two engines, one after the other, with new texts in each.

    Five conversations of 1,500 tokens fit into both caches (of 5,800 each), and not into one.
    """
    by_count = conversations(fronted, least_connections)
    by_cache = conversations(fronted, fronted.url)
    assert by_cache["cached_share"] > by_count["cached_share"]


def test_everything_listens_on_loopback_and_the_password_is_in_one_file(fronted: Fronted) -> None:
    heard = listeners(fronted.cluster_dir)
    assert {address for address, _ in heard} == {"127.0.0.1"}
    assert {port for _, port in heard} >= PORTS
    place = fronted.run_dir / "dynamo0"
    word = (place / "password").read_text()
    assert (place / "password").stat().st_mode & 0o777 == 0o600
    texts = [
        path.read_text(errors="replace")
        for top in (fronted.cluster_dir / "logs", fronted.cluster_dir / "processes")
        for path in top.rglob("*")
        if path.is_file()
    ]
    texts += [process.arguments for process in of_cluster(fronted.cluster_dir)]
    assert not [text for text in texts if word in text]


def test_the_second_run_changes_nothing(fronted: Fronted) -> None:
    ran, looked = fronted.changes_nothing()
    assert routed(ran)["workers"] == 2
    assert all(f"{name}: running" in looked.evidence("status")[0]["summary"] for name in OURS)
    (knows,) = looked.evidence("dynamo")
    assert "sends requests to 2 of 2 engines" in knows["summary"]


def test_the_gate_fails_where_events_are_cut_off(fronted: Fronted) -> None:
    """NATS hangs: requests are answered, and nothing is learnt of what caches hold."""
    pid = fronted.kill("chat-nats", signal.SIGSTOP)
    try:
        ran = fronted.run("-e", "router_dynamo_wait_seconds=10", playbook="playbooks/serve.yml")
        assert served(fronted) == {200}
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "KV events applied by the router" in ran.failure["msg"]
    assert ran.failure["found"] == "0 more"
    assert routed(fronted.run(playbook="playbooks/serve.yml"))["events"] > 0


def test_streams_of_a_killed_sidecar_go_on_with_the_same_text(
    fronted: Fronted, whole: list[Stream]
) -> None:
    pids: list[int] = []
    found = streams(
        fronted.url, fronted.key, MODEL, lambda: pids.append(fronted.kill("chat-sidecar-0"))
    )
    assert told("sidecar killed", whole, found) == 0
    assert all(one.whole for one in found)
    fronted.back("chat-sidecar-0", pids[0])
    assert served(fronted) == {200}


@pytest.mark.parametrize("name", ["chat-etcd", "chat-nats"])
def test_a_store_that_is_silent_for_a_minute_or_killed_costs_no_request(
    fronted: Fronted, whole: list[Stream], name: str
) -> None:
    with Load(fronted.url, fronted.key, MODEL) as load:
        pid = fronted.kill(name, signal.SIGSTOP)
        began = time.monotonic()
        try:
            found = streams(fronted.url, fronted.key, MODEL)
            time.sleep(max(0.0, MINUTE - (time.monotonic() - began)))
        finally:
            os.kill(pid, signal.SIGCONT)
        fronted.kill(name)
        fronted.back(name, pid)
        time.sleep(10)
    load.told(f"{name} silent for a minute, then killed")
    assert told(f"{name} silent", whole, found) == 0
    assert all(one.whole for one in found)
    assert set(load.statuses) == {200} and load.wrong == []
    assert look(fronted.pid("chat-dynamo")) and look(fronted.pid("chat-sidecar-1"))
    # What is learnt afterwards counts: a new prompt's events, at both engines.
    assert routed(fronted.run(playbook="playbooks/serve.yml"))["workers"] == 2


def test_an_engine_that_dies_behind_its_sidecar_is_taken_out_and_started_again(
    fronted: Fronted, whole: list[Stream]
) -> None:
    pid = fronted.process("chat-serve-1")["process"]["pid"]
    found = streams(
        fronted.url, fronted.key, MODEL, lambda: os.killpg(os.getpgid(pid), signal.SIGKILL)
    )
    assert told("engine killed", whole, found) == 0
    # Those of the other engine know nothing of it.
    assert any(one.whole for one in found)
    wait_until(lambda: look(pid) is None, MINUTE, "end of chat-serve-1")
    began = time.monotonic()
    wait_until(lambda: served(fronted, 12) == {200}, MINUTE, "twelve answers in a row")
    print(f"engine killed: twelve answers in a row took {time.monotonic() - began:.1f} s")
    looked = fronted.run(playbook="playbooks/status.yml")
    assert looked.status == 2, looked.output
    assert "chat does not run" in looked.failure["msg"]
    # The rank alone starts again, and its sidecar with it.
    kept = fronted.process("chat-serve-0")["instance"]
    assert routed(fronted.run())["workers"] == 2
    assert fronted.process("chat-serve-0")["instance"] == kept
    assert fronted.process("chat-serve-1")["process"]["pid"] != pid
    again = fronted.run()
    assert routed(again)["workers"] == 2
    assert again.changed == []


def test_a_killed_frontend_is_back_within_seconds(fronted: Fronted, whole: list[Stream]) -> None:
    pids: list[int] = []
    began = 0.0

    def harm() -> None:
        nonlocal began
        pids.append(fronted.kill("chat-dynamo"))
        began = time.monotonic()

    found = streams(fronted.url, fronted.key, MODEL, harm)
    assert told("frontend killed", whole, found) == 0
    wait_until(lambda: served(fronted, 1) == {200}, MINUTE, "an answer")
    print(f"frontend killed: an answer after {time.monotonic() - began:.1f} s")
    fronted.back("chat-dynamo", pids[0])
    assert routed(fronted.run(playbook="playbooks/serve.yml"))["workers"] == 2


def test_the_front_changes_to_the_router_and_back_and_then_nothing_changes(
    fronted: Fronted,
) -> None:
    stages = ("--tags", "validate,plan,cluster,serve")
    for front, running in (("router", set()), ("dynamo", OURS)):
        fronted.change(front)
        # Its ranks start anew, which is allowed by name alone.
        refused = fronted.run(*stages)
        assert "allow_disruption" in refused.failure["fix"]
        assert served(fronted, 2) == {200}
        ran = fronted.run(*stages, "-e", "allow_disruption=true")
        assert ran.status == 0, ran.output
        assert served(fronted) == {200}
        assert fronted.recorded & OURS == running
        assert (fronted.run_dir / "dynamo0").exists() == bool(running)
        again = fronted.run(*stages)
        assert again.status == 0, again.output
        assert again.changed == []
        heard = {port for _, port in listeners(fronted.cluster_dir)}
        assert heard & STORES == (STORES if running else set())
    assert routed(again)["workers"] == 2


def test_teardown_leaves_nothing(fronted: Fronted) -> None:
    stopped = fronted.run(playbook="playbooks/stop.yml")
    assert stopped.status == 0, stopped.output
    assert listeners(fronted.cluster_dir) == set()
    fronted.leaves_nothing()
