"""Ramps of a real engine: to its knee over a kill, again, and with fewer seats; compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .clone import MINUTE, Ran, wait_until
from .conftest import Site, read_json
from .processes import end_all

pytestmark = [pytest.mark.engine, pytest.mark.soak]
SEATS, FEW = 8, 1
PLAY = "playbooks/ramp.yml"
USD = 0.5
ENGINE = {
    "name": "chat",
    "model": "package:smollm2-135m-instruct",
    "port": 8280,
    "vllm_args": {
        "max_model_len": 1024,
        "dtype": "float32",
        "enforce_eager": True,
        "kv_cache_memory_bytes": 1 << 28,
        "max_num_seqs": SEATS,
    },
    "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
}
LOAD = {
    "benchmark_usd_per_hour": USD,
    "benchmark_input_tokens": 64,
    "benchmark_output_tokens": 16,
    "benchmark_ramp_least_requests": 8,
    "benchmark_ramp_requests_each": 2,
    "benchmark_slo_ttft_ms": 1500,
    "benchmark_slo_tpot_ms": 250,
}
COMPARED = {"benchmark_ramp_users": [8], "benchmark_ramp_rounds": 3}


class Ramped(Site):
    """A cluster of its own name, ports and directory, with one engine of few seats."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "ramp")
        self.serve_with(SEATS)

    def serve_with(self, seats: int) -> None:
        """Say in the inventory with how many seats the engine is to be started."""
        engine = {**ENGINE, "vllm_args": {**ENGINE["vllm_args"], "max_num_seqs": seats}}  # type: ignore[dict-item]
        self.variables = {
            "cluster_name": "ramp",
            "cluster_dir": str(self.cluster_dir),
            "accelerator": "cpu",
            "privileges": "none",
            "port_base": 27300,
            "engines": [engine],
            **LOAD,
        }
        self.inventory = self.clone.inventory("ramp", self.hosts, **self.variables)

    @property
    def kept(self) -> Path:
        return self.cluster_dir / "evidence/ramp-chat.json"

    def climb(self, **variables: Any) -> Ran:
        """Run the ramp; each of its points starts a client of its own."""
        started = self.start("-e", json.dumps(variables), playbook=PLAY)
        ran = started.result(60 * MINUTE)
        assert ran.status == 0, ran.output
        return ran

    def requests(self) -> float:
        """Return how many requests the engine has finished since its start."""
        url = f"http://127.0.0.1:{ENGINE['port']}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            text = answer.read().decode()
        values = re.findall(r"^vllm:request_success_total\{.*\} ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(map(float, values))


@pytest.fixture(scope="module")
def ramped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ramped]:
    """Serve the engine; whoever works on these tests names a directory to keep it in."""
    chosen = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    made = Ramped(Path(chosen) / "ramp" if chosen else tmp_path_factory.mktemp("ramp"))
    ran = made.run("--skip-tags", "verify,benchmark")
    assert ran.status == 0, ran.output
    yield made
    if not chosen:
        end_all(made.cluster_dir)
        shutil.rmtree(made.cluster_dir, ignore_errors=True)
        shutil.rmtree(made.run_dir, ignore_errors=True)


def document(ran: Ran) -> dict[str, Any]:
    return read_json(ran.directory / "ramp-chat.json")


def compare(ramped: Ramped, a: Ran, b: Ran) -> tuple[int, str]:
    command = [sys.executable, "-m", "vllm_ansible.console", "compare", a.directory, b.directory]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    return done.returncode, done.stdout


def test_it_climbs_to_the_knee_over_a_kill_and_says_what_a_million_tokens_cost(
    ramped: Ramped,
) -> None:
    ramped.kept.unlink(missing_ok=True)
    rounds = {"benchmark_ramp_rounds": 1}
    killed = ramped.start("-e", json.dumps(rounds), playbook=PLAY)
    wait_until(
        lambda: ramped.kept.exists() and len(read_json(ramped.kept)["points"]) >= 2,
        10 * MINUTE,
        "two points",
    )
    killed.kill()
    first = read_json(ramped.kept)["points"][:2]
    before = ramped.requests()
    ran = ramped.climb(**rounds)
    points = read_json(ramped.kept)["points"]
    assert points[:2] == first
    found = document(ran)
    users = [one["step"] for one in found["steps"]]
    assert users[:3] == [1, 2, 4] and users == [1 << place for place in range(len(users))]
    assert all(one["failed"] == 0 for one in found["steps"])
    assert found["knee"] in users
    # Its own counter: what was sent, a question before each point, those in flight at the kill.
    sent = sum(one["figures"]["requests"] for one in points[2:])
    assert sent <= ramped.requests() - before <= sent + len(points) + 16
    assert all(one["figures"]["preemptions"] == 0 for one in points[3:])
    assert all(one["figures"]["other_requests"] == 0 for one in points[3:])

    cost = found["cost"]
    assert cost["usd_per_hour"] == USD
    parts = [
        cost[f"tokens_{way}_per_request"] * cost[f"usd_per_million_{name}_tokens"]
        for way, name in (("in", "input"), ("out", "output"))
    ]
    assert sum(parts) / 1e6 == pytest.approx(cost["usd_per_request"])
    rate = next(one for one in found["steps"] if one["step"] == found["knee"])
    rate = rate["figures"]["requests_per_second"]["median"]
    assert cost["usd_per_request"] == pytest.approx(USD / 3600 / rate)
    assert found["goodput"]["slo"] == {"ttft_ms": 1500.0, "tpot_ms": 250.0}
    print(ran.evidence("ramp")[0]["summary"])

    counted = ramped.requests()
    again = ramped.climb(**rounds)
    assert (again.changed, ramped.requests()) == ([], counted)
    assert document(again) == found


def test_fewer_seats_are_worse_and_the_same_engine_is_not(ramped: Ramped) -> None:
    one = ramped.climb(**COMPARED)
    other = ramped.climb(**COMPARED, benchmark_again=True)
    status, said = compare(ramped, one, other)
    assert status in (0, 3), said

    ramped.serve_with(FEW)
    ran = ramped.run("-e", "allow_disruption=true", "--skip-tags", "verify,benchmark")
    assert ran.status == 0, ran.output
    slow = ramped.climb(**COMPARED)
    status, said = compare(ramped, one, slow)
    assert (status, "B is worse than A" in said) == (1, True), said
