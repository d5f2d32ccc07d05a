"""What a person meets who changes an engine on purpose, and whose first start was wrong already."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from .test_computation import KEY, RECORDED, ROOT, Engine

JUDGED = "Judge that all compute what their model does"
ROLE = ROOT / "roles/vllm"


class Bench:
    """The engine `a` under a real supervisord, judged by the role's own tasks."""

    def __init__(self, play: Any, serve: Any, host: dict[str, Any]) -> None:
        self.play = play
        self.engine = Engine()
        self.server = serve(self.engine)
        self.host = {**host, "name": "here", "address": "127.0.0.1", "accelerator": "cpu"}
        self.kept = Path(host["cluster_dir"], "fingerprints.json")
        Path(host["cluster_dir"], "secrets").mkdir()
        Path(host["cluster_dir"], "secrets/api_key").write_text(KEY)
        self.planned: dict[str, Any] = {
            **{"name": "a", "model": "/m", "model_source": "path", "served_name": "m"},
            **{"hosts": ["here"], "ports": {"api": self.server.port}, "arguments": []},
            **{"probe": {"prompt": "", "expect": ""}, "executor": "mp", "index": 0, "ranks": []},
        }
        self.model: dict[str, Any] = {"fingerprint": "0123456789abcdef", "path": "/m", "bytes": 9}
        self.program = "print('{}')"

    def phase(self, state: str) -> dict[str, Any]:
        step = {"engine": "a", "name": "a-serve", "state": state}
        step["argv"] = [shutil.which("sleep"), "600"]
        arguments = {"steps": [step], "host": self.host, "cluster": "demo"}
        return {"name": f"{state} a", "engine_phase": arguments}

    def judged(self, *before: dict[str, Any], **variables: Any) -> dict[str, Any]:
        """Return what the gate says, after these tasks."""
        given = {
            "cluster_name": "demo",
            "site_host": self.host,
            "site_hosts": [self.host],
            "site_head": "here",
            "site_head_host": self.host,
            "site_plan": {"engines": [self.planned]},
            "plan_decision": {"differs": True},
            "weights_models": {"a": self.model},
            "environment_installed": {"versions": {"vllm": "0.32.0"}, "python": sys.executable},
            "vllm_first_answer_timeout_seconds": 60,
            "vllm_reference_gib": 0,
        }
        (self.play.directory / "given.json").write_text(
            json.dumps({"vllm_reference_program": self.program, **given, **variables})
        )
        tasks = [
            *before,
            {"ansible.builtin.include_vars": str(ROLE / "defaults/main.yml")},
            {"ansible.builtin.include_vars": str(ROLE / "vars/main.yml")},
            {"ansible.builtin.include_tasks": str(ROLE / "tasks/computation.yml")},
        ]
        played = self.play(tasks, flags=("-e", "@given.json"))
        found: dict[str, Any] = played[JUDGED]
        return found

    def restarted(self, recorded: str, **variables: Any) -> dict[str, Any]:
        """Return what the gate says of another start that computes so."""
        self.engine.recorded = recorded
        return self.judged(self.phase("stopped"), self.phase("started"), **variables)


def summary(judged: dict[str, Any]) -> str:
    assert not judged.get("failed"), judged
    return str(judged["evidence"]["summary"])


def test_a_meant_change_closes_no_engine_or_is_taken_anew_as_the_refusal_says(
    play: Any, serve: Any, host: dict[str, Any]
) -> None:
    bench = Bench(play, serve, host)
    summary(bench.judged(bench.phase("started")))
    asked = len(bench.server.requests)
    kept = json.loads(bench.kept.read_text())
    other = {"of": "b on here", "prompts": RECORDED["tuneda"]}
    bench.kept.write_text(json.dumps({**kept, "weights": {**kept["weights"], "other": other}}))

    # Weights that changed on the disk leave the start that passed what it was.
    weights, bench.model["fingerprint"] = bench.model["fingerprint"], "fedcba9876543210"
    told = summary(bench.judged())
    assert told == "1 of 1 servers compute what their model does; 1 asked at their start"
    assert len(bench.server.requests) == asked
    bench.model["fingerprint"] = weights

    refused = bench.restarted("swapped")
    assert refused["failed"] and "-e vllm_computation_again=true" in refused["fix"]

    told = summary(bench.restarted("swapped", vllm_computation_again=True))
    assert "1 of 1 servers" in told and "kept from now on (vllm_computation_again)" in told
    found = json.loads(bench.kept.read_text())["weights"]
    assert found.pop("other") == other
    assert [one["prompts"] for one in found.values()] == [RECORDED["swapped"]]

    # An argument that changes right numbers is another engine.
    bench.planned["arguments"] = ["--hf-overrides", '{"rope_theta": 1}']
    assert summary(bench.restarted("bf16")).startswith("1 of 1 servers")

    # What nobody has measured is a warning with the numbers.
    bench.model["experts"] = 8
    told = summary(bench.restarted("scaled"))
    assert "differ by 0.2155" in told and "vllm_computation_unmeasured_tolerance" in told


def test_a_first_start_that_is_wrong_already_leaves_what_transformers_computes(
    play: Any, serve: Any, host: dict[str, Any]
) -> None:
    bench = Bench(play, serve, host)
    bench.engine.recorded = "scaled"
    numbers = [{name: one[name] for name in ("tokens", "logprobs")} for one in RECORDED["f32"]]
    bench.program = f"print({json.dumps({'result': {'prompts': numbers}})!r})"
    wanted = {"vllm_reference_gib": 1.0}
    refused = bench.judged(bench.phase("started"), **wanted)
    assert refused["failed"]
    assert "from transformers, in float32" in refused["found"]
    assert not bench.kept.exists()
    task = Path(host["cluster_dir"], "tasks/reference-0123456789ab.json")
    once = json.loads(task.read_text())

    told = summary(bench.restarted("tp3", **wanted))
    assert "1 compared with transformers' float32 numbers" in told
    # Once for each digest of weights.
    assert json.loads(task.read_text())["started"] == once["started"]

    # This Python has no transformers.
    bench.model["fingerprint"] = "fedcba9876543210"
    bench.program = (ROLE / "files/reference_numbers.py").read_text()
    told = summary(bench.restarted("bf16", **wanted))
    assert "a not compared with transformers: the environment has no transformers" in told
