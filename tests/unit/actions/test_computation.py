"""The tasks of the role under a real supervisord; servers answer with a real model's numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from vllm_ansible.node import launcher
from vllm_ansible.node.engine.fingerprint import PROMPTS

ROOT = Path(__file__).parents[3]
RECORDED = json.loads((ROOT / "tests/data/smollm2-computation.json").read_text())
KEY = "k-123456"


class Engine:
    """Answers as vLLM does, with recorded numbers; a process of the host stands for it."""

    def __init__(self) -> None:
        self.recorded = "bf16"

    def __call__(self, request: Any) -> tuple[int, Any]:
        if request.key != f"Bearer {KEY}":
            return 401, {"error": "Unauthorized"}
        told = RECORDED[self.recorded][PROMPTS.index(request.body["prompt"])]
        pairs = zip(told["tokens"], told["logprobs"], strict=True)
        prompt = [None, *({str(token): {"logprob": value}} for token, value in pairs)]
        greedy = {
            "tokens": [f"token_id:{one}" for one in told["greedy"]],
            "token_logprobs": told["greedy_logprobs"],
        }
        return 200, {"choices": [{"prompt_logprobs": prompt, "logprobs": greedy}]}


def alive(cluster_dir: str, process: str) -> bool:
    state = json.loads(Path(cluster_dir, "processes", f"{process}.state.json").read_text())
    return launcher.alive(state["process"]["pid"], state["process"]["start_time"])


def test_who_computes_or_answers_otherwise_fails_by_name_and_its_door_is_closed(
    play: Any, serve: Any, host: dict[str, Any], tmp_path: Path
) -> None:
    engines = {name: Engine() for name in ("a", "b")}
    servers = {name: serve(engine) for name, engine in engines.items()}
    cluster_dir = host["cluster_dir"]
    Path(cluster_dir, "secrets").mkdir()
    Path(cluster_dir, "secrets/api_key").write_text(KEY)
    host |= {"name": "here", "address": "127.0.0.1", "accelerator": "cpu"}
    plan = [
        {
            **{"name": name, "model": "/m", "model_source": "path", "served_name": "m"},
            **{"hosts": ["here"], "ports": {"api": servers[name].port}, "arguments": []},
            **{"probe": {"prompt": "", "expect": ""}, "executor": "mp", "index": 0, "ranks": []},
        }
        for name in engines
    ]
    refusal = {"expected": "Paris", "found": "Rome", "where": "a-serve.log", "fix": "look"}
    variables = {
        "cluster_name": "demo",
        "site_host": host,
        "site_hosts": [host],
        "site_head": "here",
        "site_head_host": host,
        "site_plan": {"engines": plan},
        "plan_decision": {"differs": False},
        "plan_processes": {},
        "vllm_restarts": 0,
        "weights_models": {name: {"fingerprint": "w1"} for name in engines},
        "environment_installed": {"versions": {"vllm": "0.32.0"}, "directory": "/e"},
        "vllm_first_answer_timeout_seconds": 10,
        "vllm_computation_tolerance": 0.1,
        "vllm_computation_unmeasured_tolerance": 0.37,
        "vllm_computation_again": False,
        "vllm_reference_gib": 0,
        "role_path": str(ROOT / "roles/vllm"),
        "vllm_close_wrong": True,
        "__vllm_verdicts": {"unready": {"a": refusal}, "silent": [], "wrong": ["a"]},
    }

    def phase(state: str, *names: str) -> dict[str, Any]:
        step = {"engine": "", "state": state, "argv": [shutil.which("sleep"), "600"]}
        steps = [{**step, "name": f"{name}-serve", "engine": name} for name in names]
        arguments = {"steps": steps, "host": host, "cluster": "demo"}
        return {"name": f"{state} {' '.join(names)}", "engine_phase": arguments}

    def role(name: str) -> dict[str, Any]:
        return {"ansible.builtin.include_tasks": str(ROOT / f"roles/vllm/tasks/{name}.yml")}

    read = {"ansible.builtin.include_vars": str(ROOT / "roles/vllm/vars/main.yml")}
    compute = role("computation")
    hosts = {"here": variables}
    kept = Path(cluster_dir, "fingerprints.json")

    played = play([phase("started", "a", "b"), read, compute, compute], hosts)
    evidence = played["Judge that all compute what their model does"]["evidence"]
    assert evidence["summary"] == (
        "2 of 2 servers compute what their model does; 2 asked at their start"
    )
    assert [len(one.requests) for one in servers.values()] == [len(PROMPTS)] * 2
    first = json.loads(kept.read_text())
    assert set(first["servers"]) == {"a-serve", "b-serve"}

    # One that may not be asked is said.
    fast = [{**plan[0], "arguments": ["--kv-sharing-fast-prefill"]}]
    spared = play([read, compute], {"here": {**variables, "site_plan": {"engines": fast}}})
    told = spared["Judge that all compute what their model does"]["evidence"]["summary"]
    assert told.startswith("0 of 1 servers") and "a not compared: kv_sharing_fast_prefill" in told
    assert len(servers["a"].requests) == len(PROMPTS)
    kept.write_text(json.dumps(first))

    engines["b"].recorded = "swapped"
    again = [phase("stopped", "b"), phase("started", "b"), read, compute]
    missed = play(again, hosts)["Judge that all compute what their model does"]
    assert missed["failed"] and "check failed: the numbers that b computes" in missed["msg"]
    assert missed["where"] == "b on here"
    assert "differ by 0.3" in missed["found"] and "from a on here, kept" in missed["found"]
    assert [len(one.requests) for one in servers.values()] == [len(PROMPTS), 2 * len(PROMPTS)]
    found = json.loads(kept.read_text())
    assert found["weights"] == first["weights"] and set(found["servers"]) == {"a-serve"}
    assert alive(cluster_dir, "a-serve") and not alive(cluster_dir, "b-serve")

    # One that answers wrongly is stopped by the same tasks, and stays where that is wanted.
    diagnose = [read, role("diagnose")]
    left = play(diagnose, {"here": {**variables, "vllm_close_wrong": False}})
    assert "Stop servers whose numbers or answers are wrong" not in left.tasks
    assert alive(cluster_dir, "a-serve")
    closed = play(diagnose, hosts)
    assert closed["Stop servers whose numbers or answers are wrong"]["changed"]
    said = closed["Say which line of each engine was the first to fail"]
    assert said["failed"] and "Rome" in json.dumps(said)
    assert not alive(cluster_dir, "a-serve")
