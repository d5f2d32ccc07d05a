"""One prefill and one decode engine of this machine, apart, with NIXL between them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.benchmark import ramp

from .clone import MINUTE, Ran, wait_until
from .conftest import CHAT, Site, read_json
from .dynamo import chat, status
from .greedy import ASK
from .processes import end_all, identities, listeners, of_cluster

pytestmark = [
    pytest.mark.engine,
    pytest.mark.soak,
    pytest.mark.skipif(not Path("/usr/sbin/haproxy").exists(), reason="no haproxy on this machine"),
]
MODEL = "smollm2-135m-instruct"
LOAD = {
    "benchmark_ramp_users": [1, 4],
    "benchmark_ramp_rounds": 1,
    "benchmark_ramp_least_requests": 12,
    "benchmark_ramp_requests_each": 4,
    "benchmark_input_tokens": 384,
    "benchmark_output_tokens": 48,
}
TOLD = ("ttft_ms_p50", "ttft_ms_p90", "itl_ms_p50", "itl_ms_p99", "output_tokens_per_second")
# API and side channel of both, the front with its figures, the router with its watch.
READ, WRITE = {28220, 28217}, {28320, 28317}
FRONT = {28301, 28302, 28315, 28316}


class Apart(Site):
    """A cluster of this machine that reads prompts with one engine and writes with another."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "apart")
        arguments = {**CHAT["vllm_args"], "block_size": 32}
        self.engine = {"model": CHAT["model"], "layout": {"tensor": 1}, "vllm_args": arguments}
        self.variables |= {"accelerator_count": 2, "port_base": 28200}
        self.serve(
            {**self.engine, "name": "read", "role": "prefill"},
            {**self.engine, "name": "write", "role": "decode"},
        )

    def serve(self, *engines: dict[str, Any]) -> None:
        """Write engines into the inventory."""
        self.variables["engines"] = list(engines)
        self.inventory = self.clone.inventory("apart", self.hosts, **self.variables)

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

    url = "http://127.0.0.1:28315/v1"

    @property
    def key(self) -> str:
        return self.secrets["api_key"]

    def pid(self, name: str) -> int:
        return int(self.process(name)["process"]["pid"])

    def greedy(self, port: int) -> Any:
        """Return what answers at a port when it always takes the likeliest token."""
        words = [sys.executable, "-c", ASK, f"http://127.0.0.1:{port}", self.state / "api_key"]
        asked = subprocess.run([*words, MODEL], capture_output=True, text=True, check=True)
        return json.loads(asked.stdout)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    """Return the cluster, not yet brought up; nothing of it stays behind, unless it is kept."""
    kept = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    made = Apart(Path(kept) if kept else tmp_path_factory.mktemp("apart"))
    yield made
    if kept:
        return
    end_all(made.cluster_dir)
    shutil.rmtree(made.cluster_dir, ignore_errors=True)
    shutil.rmtree(made.run_dir, ignore_errors=True)


def moved(ran: Ran) -> dict[str, Any]:
    """Return what the gate of pairs keeps of a run that went well."""
    assert ran.status == 0, ran.output
    kept = [one["values"] for one in ran.evidence("pairs") if "pairs" in one["values"]]
    assert len(kept) == 1, ran.output
    found: dict[str, Any] = kept[0]
    return found


def test_decode_fetches_what_prefill_has_computed(apart: Apart) -> None:
    # Of 20 minutes nothing was left on a machine with a load of 20.
    found = moved(apart.start().result(40 * MINUTE))
    print(json.dumps(found))
    (pair,) = found["pairs"]
    assert (pair["prefill"], pair["decode"]) == ("read", "write")
    for one in (pair, found["front"]):
        assert one["remote"] >= 0.9 * one["tokens"] > 100
        assert one["bytes"] > 1_000_000
        assert one["failed"] == 0
    assert status(apart.url, apart.key, chat(MODEL, "a ship", 4)) == 200
    assert status(apart.url, "another", chat(MODEL, "a ship", 4)) == 401


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
    alone = apart.greedy(28220)
    assert len(alone["tokens"]) == 32
    assert apart.greedy(28315)["text"] == alone["text"]


def test_all_of_it_listens_on_loopback(apart: Apart) -> None:
    heard = listeners(apart.cluster_dir)
    assert {address for address, _ in heard} == {"127.0.0.1"}
    assert {port for _, port in heard} >= READ | WRITE | FRONT


def test_the_second_run_changes_nothing(apart: Apart) -> None:
    before = identities(apart.cluster_dir)
    ran = apart.run()
    moved(ran)
    assert ran.changed == []
    assert identities(apart.cluster_dir) == before
    looked = apart.run(playbook="playbooks/status.yml")
    assert looked.status == 0, looked.output


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
    moved(apart.run("-e", "allow_disruption=true"))


def test_a_lost_prefill_engine_is_an_error_and_starts_again_alone(apart: Apart) -> None:
    kept, pid = apart.process("write-serve")["instance"], apart.pid("read-serve")
    os.killpg(os.getpgid(pid), signal.SIGKILL)
    asked = {status(apart.url, apart.key, chat(MODEL, f"ship {n}", 4)) for n in range(4)}
    assert asked <= {500, 502, 503}
    moved(apart.run())
    assert apart.process("write-serve")["instance"] == kept
    wait_until(
        lambda: status(apart.url, apart.key, chat(MODEL, "a ship", 4)) == 200, MINUTE, "an answer"
    )


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
    ran = apart.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert of_cluster(apart.cluster_dir) == []
    assert not list((apart.cluster_dir / "processes").glob("*"))
    assert not apart.run_dir.exists()
