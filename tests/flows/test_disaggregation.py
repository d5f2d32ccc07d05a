"""Prefill and decode of this machine apart, NIXL between them, behind vLLM's router or Dynamo."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.benchmark import ramp

from .clone import MINUTE, Ran, wait_until
from .conftest import CHAT, Site, one_site, read_json
from .dynamo import MODEL, chat, programs, routed, status, text_of
from .processes import listeners

pytestmark = [
    pytest.mark.engine,
    pytest.mark.soak,
    pytest.mark.skipif(not Path("/usr/sbin/haproxy").exists(), reason="no haproxy on this machine"),
]
LOAD = {
    "benchmark_ramp_users": [1, 4],
    "benchmark_ramp_rounds": 1,
    "benchmark_ramp_least_requests": 12,
    "benchmark_ramp_requests_each": 4,
    "benchmark_input_tokens": 384,
    "benchmark_output_tokens": 48,
}
TOLD = ("ttft_ms_p50", "ttft_ms_p90", "itl_ms_p50", "itl_ms_p99", "output_tokens_per_second")
# First port of the cluster; of each engine, then of the front, counted from the engine's first:
# API and side channel, gRPC and sidecar; the front with its stores or figures, HAProxy, its watch.
PORTS = {
    "router": (28200, {20, 17}, {1, 2, 15, 16}),
    "dynamo": (28600, {20, 17, 40, 60, 80}, {1, 2, 3, 15, 16}),
}
OURS = {"write-dynamo", "write-etcd", "write-nats", "read-sidecar-0", "write-sidecar-0"}
ROUTER_ALONE = pytest.mark.parametrize("apart", ["router"], indirect=True)


class Apart(Site):
    """A cluster of this machine that reads prompts with one engine and writes with another."""

    def __init__(self, directory: Path, front: str) -> None:
        super().__init__(directory, f"apart-{front}")
        self.front = front
        self.base, each, of_front = PORTS[front]
        self.ports = {self.base + port for port in each}
        self.ports |= {self.base + 100 + port for port in each | of_front}
        self.read, self.url = self._at(20), self._at(115)
        arguments = {**CHAT["vllm_args"], "block_size": 32}
        self.engine = {"model": CHAT["model"], "layout": {"tensor": 1}, "vllm_args": arguments}
        self.variables |= {"accelerator_count": 2, "port_base": self.base}
        more = {}
        if front == "dynamo":
            found = programs(directory)
            more = found.engine
            self.variables |= found.variables
        self.serve(
            {**self.engine, **more, "name": "read", "role": "prefill"},
            {**self.engine, **more, "name": "write", "role": "decode"},
        )

    def _at(self, port: int) -> str:
        return f"http://127.0.0.1:{self.base + port}/v1"

    def serve(self, *engines: dict[str, Any]) -> None:
        """Write engines into the inventory."""
        self.variables["engines"] = list(engines)
        self.inventory = self.clone.inventory("flow", self.hosts, **self.variables)

    def measured(self, name: str) -> dict[float, dict[str, float]]:
        """Return the medians of what `playbooks/ramp.yml` measures, by number of users."""
        ran = self.run("-e", json.dumps(LOAD), playbook="playbooks/ramp.yml")
        assert ran.status == 0, ran.output
        found = read_json(ran.directory / f"ramp-{name}.json")
        assert [(one["step"], one["failed"]) for one in found["steps"]] == [(1, 0), (4, 0)]
        steps = {one["step"]: ramp.medians(one) for one in found["steps"]}
        for users, figures in steps.items():
            print(name, users, {key: round(figures[key], 1) for key in TOLD})
        return steps


@pytest.fixture(scope="module", params=list(PORTS))
def apart(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Apart]:
    with one_site(tmp_path_factory, "apart", lambda place: Apart(place, request.param)) as made:
        yield made


def moved(apart: Apart, ran: Ran) -> dict[str, Any]:
    """Return what the gate of pairs keeps of a run that went well; Dynamo's gate passed, too."""
    assert ran.status == 0, ran.output
    kept = [one["values"] for one in ran.evidence("pairs") if "pairs" in one["values"]]
    assert len(kept) == 1, ran.output
    found: dict[str, Any] = kept[0]
    if apart.front == "dynamo":
        known = routed(ran)
        print(json.dumps(known))
        assert known["workers"] == 2 and known["events"] > 0
    return found


def test_decode_fetches_what_prefill_has_computed(apart: Apart) -> None:
    # Of 20 minutes nothing was left on a machine with a load of 20.
    found = moved(apart, apart.start().result(40 * MINUTE))
    print(json.dumps(found))
    (pair,) = found["pairs"]
    assert (pair["prefill"], pair["decode"]) == ("read", "write")
    for one in (pair, found["front"]):
        assert one["remote"] >= 0.9 * one["tokens"] > 100
        # vLLM's Rust front end counts no bytes.
        assert (one["bytes"] == 0) if apart.front == "dynamo" else (one["bytes"] > 1_000_000)
        assert one["failed"] == 0
    assert status(apart.url, apart.key, chat(MODEL, "a ship", 4)) == 200
    assert status(apart.url, "another", chat(MODEL, "a ship", 4)) == 401


@ROUTER_ALONE
def test_pages_that_change_its_engines_are_closed(apart: Apart) -> None:
    request = urllib.request.Request(
        "http://127.0.0.1:28315/list_workers", headers={"Authorization": f"Bearer {apart.key}"}
    )
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(request, timeout=MINUTE)  # noqa: S310 - the address above
    # vLLM's router has them.
    with urllib.request.urlopen("http://127.0.0.1:28301/list_workers", timeout=MINUTE) as answer:
        assert b"28220" in answer.read()


def test_the_answer_is_that_of_one_process(apart: Apart) -> None:
    """A prefill engine that is asked alone computes the whole answer."""
    body = chat(MODEL, "Write a long story about a ship.", 48)
    alone = text_of(apart.read, apart.key, body)
    assert alone[0] == 200 and len(alone[1]) > 100
    assert text_of(apart.url, apart.key, body) == alone


def test_all_of_it_listens_on_loopback(apart: Apart) -> None:
    heard = listeners(apart.cluster_dir)
    assert {address for address, _ in heard} == {"127.0.0.1"}
    assert {port for _, port in heard} >= apart.ports


def test_the_second_run_changes_nothing(apart: Apart) -> None:
    ran, looked = apart.changes_nothing()
    moved(apart, ran)
    if apart.front == "dynamo":
        said = looked.evidence("status")[0]["summary"]
        assert all(f"{name}: running" in said for name in OURS)
        assert "sends requests to 2 of 2 engines" in looked.evidence("dynamo")[0]["summary"]


@ROUTER_ALONE
def test_a_front_that_asks_decode_alone_fails_the_gate(apart: Apart) -> None:
    """As if somebody had put the router before the decode engine: the answers are right."""
    changed = apart.cluster_dir / "routers/write/haproxy.cfg"
    assert "127.0.0.1:28301" in changed.read_text()
    try:
        template = apart.clone.directory / "roles/router/templates/haproxy.cfg.j2"
        kept = template.read_text()
        template.write_text(kept.replace("{{ rank.port }}", "28320"))
        ran = apart.run("-e", "router_pairs_wait_seconds=10", "-e", "allow_disruption=true")
        assert ran.status != 0, ran.output
        assert "moved when a client asks" in ran.failure["msg"]
        assert ran.failure["found"].startswith("0 of ")
        assert status(apart.url, apart.key, chat(MODEL, "a ship", 4)) == 200
    finally:
        template.write_text(kept)
    moved(apart, apart.run("-e", "allow_disruption=true"))


def test_a_lost_prefill_engine_is_an_error_and_starts_again_alone(apart: Apart) -> None:
    kept, pid = apart.process("write-serve")["instance"], apart.pid("read-serve")
    os.killpg(os.getpgid(pid), signal.SIGKILL)
    asked = [status(apart.url, apart.key, chat(MODEL, f"ship {n}", 4)) for n in range(4)]
    print("without prefill:", asked)
    assert set(asked) <= {500, 502, 503}
    moved(apart, apart.run())
    assert apart.process("write-serve")["instance"] == kept
    wait_until(
        lambda: status(apart.url, apart.key, chat(MODEL, "a ship", 4)) == 200, MINUTE, "an answer"
    )


@ROUTER_ALONE
def test_two_replicas_in_its_place_are_measured_beside_it(apart: Apart) -> None:
    """One run each, on cores that other work may share: figures to look at, not to judge by."""
    two = apart.measured("write")
    apart.serve({**apart.engine, "name": "chat", "layout": {"data": 2, "tensor": 1}})
    ran = apart.run("-e", "allow_disruption=true")
    assert ran.status == 0, ran.output
    left = {path.name for path in (apart.cluster_dir / "processes").glob("*.json")}
    assert not [name for name in left if name.startswith(("read-", "write-"))]
    replicas = apart.measured("chat")
    for users in (1, 4):
        assert all(one[users][key] > 0 for one in (two, replicas) for key in TOLD)


def test_teardown_leaves_nothing(apart: Apart) -> None:
    apart.leaves_nothing()
