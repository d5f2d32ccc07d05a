"""The role's own tasks start an engine that hangs until it is eager; a real play, a real server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.unit.plan.test_first_start import ENGINES

pytestmark = pytest.mark.soak
ROLES = Path(__file__).parents[3] / "roles"
KEY = "k-1"
# Answers as vLLM does, once it is eager; before, it says nothing.
SERVER = """
import http.server, json, sys, time
while "--enforce-eager" not in sys.argv:
    time.sleep(60)
class Page(http.server.BaseHTTPRequestHandler):
    def tell(self, status, content):
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        self.tell(200 if self.path == "/health" else 401, {})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "Paris"}
        logprobs = {"content": [{"token": "Paris", "logprob": -0.1}]}
        choice = {"message": message, "finish_reason": "stop", "logprobs": logprobs}
        self.tell(200, {"choices": [choice], "usage": {"completion_tokens": 1}})
print("INFO Starting to load model /m", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def test_it_serves_on_its_third_start_and_what_helped_is_kept(
    play: Any, host: dict[str, Any], tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    cluster_dir = Path(host["cluster_dir"])
    (cluster_dir / "secrets").mkdir()
    (cluster_dir / "secrets/api_key").write_text(KEY)
    here = {**host, "name": "n1", "address": "127.0.0.1", "accelerator": "nvidia"}
    probe = {"prompt": "Which city?", "expect": "Paris"}
    engine = {**ENGINES[0], "ports": {**ENGINES[0]["ports"], "api": port}, "probe": probe}
    step = {
        **{"name": "a-serve", "engine": "a", "host": "n1", "state": "started", "user": None},
        **{"argv": [sys.executable, "-c", SERVER, str(port)], "environment": {}, "depends": {}},
        **{"limits": {}, "cleanup": []},
    }
    decision = {
        **{"starts": True, "differs": True, "engines": {"a": {"action": "start"}}},
        "hosts": {"n1": {"start_serve": [step]}},
    }
    variables = {
        **{"cluster_name": "demo", "site_host": here, "site_hosts": [here], "site_head": "n1"},
        **{"site_plan": {"engines": [engine]}, "plan_decision": decision},
        **{
            "environment_installed": {"versions": {}, "directory": str(tmp_path)},
            "weights_models": {},
        },
        **{"vllm_silence_seconds": 20, "vllm_restarts": 3},
    }

    role = {"name": "vllm", "tasks_from": "answer", "rolespec_validate": False}
    stop = [{"name": "a-serve", "engine": "a", "state": "absent"}]
    phase = {"steps": stop, "host": here, "cluster": "demo"}
    played = play(
        [
            {"name": "start", "ansible.builtin.include_role": role},
            {"name": "stop", "engine_phase": phase},
        ],
        {"n1": variables},
        {"ANSIBLE_ROLES_PATH": str(ROLES), "PATH": os.environ["PATH"]},
    )
    assert played["vllm : See which engines did not answer"]["ready"].keys() == {"a"}
    kept = json.loads((cluster_dir / "ladder.json").read_text())["engines"]["a"]
    assert (kept["rung"], kept["helped"]) == ("eager", True)
    assert kept["tried"] == ["again", "graphs", "eager"]
