"""A served engine under load: two thousand prompts in a batch, and a sweep of three by three."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .clone import MINUTE, read_events, wait_until
from .conftest import Site, read_json
from .processes import end_all

pytestmark = [pytest.mark.engine, pytest.mark.soak]
PROMPTS, TOKENS, SEATS = 2000, 8, 16
SEQUENCES, BATCHED = [4, 8, 16], [16, 64, 512]
ENGINE = {
    "name": "chat",
    "model": "package:smollm2-135m-instruct",
    "port": 8270,
    "vllm_args": {
        "max_model_len": 1024,
        "dtype": "float32",
        "kv_cache_memory_bytes": 1 << 28,
        "max_num_seqs": SEATS,
    },
    "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
}


class Loaded(Site):
    """A cluster of its own name, ports and directory, with one engine of sixteen seats."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.variables = {
            "cluster_name": "load",
            "cluster_dir": str(self.cluster_dir),
            "accelerator": "cpu",
            "privileges": "none",
            "port_base": 27000,
            "engines": [ENGINE],
        }
        self.inventory = self.clone.inventory("load", self.hosts, **self.variables)

    @property
    def run_dir(self) -> Path:
        return Path(os.sep, "tmp", f"vllm-load-{os.getuid()}")

    @property
    def state(self) -> Path:
        return self.clone.directory / "state" / "load"

    @property
    def argv(self) -> list[str]:
        """What the server was started with."""
        found: list[str] = read_json(self.cluster_dir / "processes/chat-serve.json")["argv"]
        return found

    @property
    def sweep(self) -> dict[str, Any]:
        return read_json(self.cluster_dir / "evidence/sweep-chat.json")

    def counted(self, name: str) -> float:
        """Return a counter of the engine, over all its labels."""
        url = f"http://127.0.0.1:{ENGINE['port']}/metrics"
        key = (self.state / "api_key").read_text().strip()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
            text = answer.read().decode()
        values = re.findall(rf"^{re.escape(name)}\{{.*\}} ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(map(float, values))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """Serve the engine; whoever works on these tests names a directory to keep it in."""
    chosen = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    made = Loaded(Path(chosen) / "load" if chosen else tmp_path_factory.mktemp("load"))
    ran = made.run("--skip-tags", "benchmark")
    assert ran.status == 0, ran.output
    made.served_in = ran.runs  # type: ignore[attr-defined]
    yield made
    if not chosen:
        end_all(made.cluster_dir)
        shutil.rmtree(made.cluster_dir, ignore_errors=True)
        shutil.rmtree(made.run_dir, ignore_errors=True)


def test_two_thousand_prompts_are_answered_once_each(loaded: Loaded) -> None:
    directory = loaded.directory / "batch"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    prompts = directory / "prompts.json"
    content = {
        "system": "Answer concisely.",
        "parameters": {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True},
        "prompts": [
            {"tag": f"q{number}", "prompt": f"What is special about the number {number}?"}
            for number in range(PROMPTS)
        ],
    }
    prompts.write_text(json.dumps(content))
    output = directory / "prompts.answers.jsonl"
    command = [sys.executable, "-m", "vllm_ansible.console", "send", prompts]
    command += ["-i", loaded.inventory, "--checkout", loaded.clone.directory]
    runs: Path = loaded.served_in  # type: ignore[attr-defined]
    environment = {**os.environ, "VLLM_ANSIBLE_RUNS_DIR": str(runs)}
    before = loaded.counted("vllm:generation_tokens_total")

    with subprocess.Popen(command, env=environment) as killed:
        enough = 5 * SEATS
        wait_until(
            lambda: output.exists() and len(output.read_bytes().splitlines()) > enough,
            5 * MINUTE,
            "the first answers",
        )
        killed.kill()
    kept = len(output.read_bytes().splitlines())
    assert kept < PROMPTS

    done = subprocess.run(
        [*command, "--json"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ok"], found["failed"]) == (True, 0)
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [one["tag"] for one in records] == [f"q{number}" for number in range(PROMPTS)]
    assert {one["completion_tokens"] for one in records} == {TOKENS}
    assert all(one["text"] for one in records)
    assert all(0 < one["ttft_ms"] <= one["total_ms"] for one in records)
    # Those in flight when it was killed went twice, and no other; the engine has counted, too.
    again = sum(one["sent"] - 1 for one in records)
    assert again <= SEATS
    generated = loaded.counted("vllm:generation_tokens_total") - before
    assert PROMPTS * TOKENS <= generated <= (PROMPTS + again) * TOKENS
    print(json.dumps(found, indent=1))


def sweep() -> tuple[str, ...]:
    lists = {"sweep_max_num_seqs": SEQUENCES, "sweep_max_num_batched_tokens": BATCHED}
    return ("-e", json.dumps({**lists, "allow_disruption": True, "sweep_rounds": 2}))


def test_three_by_three_points_are_measured_also_over_a_kill(loaded: Loaded) -> None:
    served = loaded.argv
    (loaded.cluster_dir / "evidence/sweep-chat.json").unlink(missing_ok=True)
    one = json.dumps({"sweep_points": [{"max_num_seqs": 4, "max_num_batched_tokens": 64}]})
    refused = loaded.run("-e", one, playbook="playbooks/sweep.yml")
    assert "allow_disruption=true" in str(refused.failure)
    assert loaded.argv == served

    killed = loaded.start(*sweep(), playbook="playbooks/sweep.yml")
    killed.wait_for(
        lambda event: event["event"] == "evidence" and event["gate"] == "sweep_point",
        "the first point",
        6 * MINUTE,
    )
    time.sleep(5)
    killed.kill()
    (first,) = loaded.sweep["points"]
    assert loaded.argv != served

    # Nine starts of an engine, on however busy a machine: what tells of a standstill is the run.
    ran = loaded.start(*sweep(), playbook="playbooks/sweep.yml").result(60 * MINUTE)
    assert ran.status == 0, ran.output
    kept = loaded.sweep
    assert kept["points"][0] == first
    assert [(one["max_num_seqs"], one["max_num_batched_tokens"]) for one in kept["points"]] == [
        (sequences, tokens) for sequences in SEQUENCES for tokens in BATCHED
    ]
    assert all(one["ok"] for one in kept["points"])
    assert (kept["before"], loaded.argv) == ({}, served)
    (evidence,) = ran.evidence("sweep")
    assert {Path(one).suffix for one in evidence["values"]["files"]} == {
        ".csv", ".json", ".md", ".svg",
    }  # fmt: skip
    print((ran.directory / "sweep-chat.md").read_text())

    again = loaded.run(*sweep(), playbook="playbooks/sweep.yml")
    assert (again.status, again.changed) == (0, []), again.output


def test_a_point_that_the_engine_refuses_is_recorded_and_passed_over(loaded: Loaded) -> None:
    served = loaded.argv
    pairs = [(16, 8), (16, 128)]
    points = [
        dict(zip(("max_num_seqs", "max_num_batched_tokens"), one, strict=True)) for one in pairs
    ]
    variables = json.dumps({"sweep_points": points, "allow_disruption": True})
    ran = loaded.run("-e", variables, playbook="playbooks/sweep.yml")
    assert ran.status == 0, ran.output
    found = {
        (one["max_num_seqs"], one["max_num_batched_tokens"]): one for one in loaded.sweep["points"]
    }
    assert (found[16, 8]["ok"], found[16, 128]["ok"]) == (False, True)
    assert "max_num_batched_tokens" in json.dumps(found[16, 8]["failure"])
    assert "failed: 16 x 8" in ran.evidence("sweep")[0]["summary"]
    assert loaded.argv == served
    events = read_events(ran.runs)
    assert [one for one in events if one["event"] == "run_end"][-1]["ok"]
