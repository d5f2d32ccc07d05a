"""What a server computes for fixed prompts, read from real HTTP servers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import launcher
from vllm_ansible.node.engine.completion import Unanswered
from vllm_ansible.node.engine.fingerprint import PROMPTS, broken, fingerprint

KEY = "k-123456"
# As vLLM 0.32 answered, shortened.
CHOICE = {
    "text": " Europe",
    "prompt_logprobs": [
        None,
        {"47": {"logprob": -3.25, "rank": 7, "decoded_token": "a"}},
        {"9": {"logprob": -0.5000012, "rank": 1, "decoded_token": "b"}},
    ],
    "logprobs": {"tokens": ["token_id:12", "token_id:8"], "token_logprobs": [-0.25, -1.5]},
}


def answering(choice: Any, status: int = 200) -> Callable[[Any], tuple[int, Any]]:
    return lambda request: (status, {"choices": [choice]})


def test_the_numbers_of_every_prompt_are_read(serve: Any) -> None:
    server = serve(answering(CHOICE))
    found = fingerprint(server.url, KEY, "m", 10)
    assert found["prompts"] == [
        {
            "tokens": [47, 9],
            "logprobs": [-3.25, -0.5],
            "greedy": [12, 8],
            "greedy_logprobs": [-0.25, -1.5],
        }
    ] * len(PROMPTS)
    assert [request.body["prompt"] for request in server.requests] == list(PROMPTS)
    body = server.requests[0].body
    assert (body["temperature"], body["prompt_logprobs"], body["logprobs"]) == (0, 0, 1)
    assert {(request.path, request.key) for request in server.requests} == {
        ("/v1/completions", f"Bearer {KEY}")
    }
    assert broken(found["prompts"]) == 0


@pytest.mark.parametrize(
    ("choice", "status", "why"),
    [
        ({**CHOICE, "prompt_logprobs": None}, 200, "no log probabilities of the prompt"),
        ({**CHOICE, "logprobs": None}, 200, "no log probabilities of the prompt"),
        ("prompt_logprobs is not supported", 400, "HTTP 400: .*not supported"),
    ],
)
def test_a_server_without_numbers_says_so(serve: Any, choice: Any, status: int, why: str) -> None:
    with pytest.raises(Unanswered, match=why):
        fingerprint(serve(answering(choice, status)).url, KEY, "m", 10)


def test_numbers_that_are_none_are_counted(serve: Any) -> None:
    given = {**CHOICE, "logprobs": {**CHOICE["logprobs"], "token_logprobs": [None, -1.0]}}
    found = fingerprint(serve(answering(given)).url, KEY, "m", 10)
    assert broken(found["prompts"]) == len(PROMPTS)


def test_a_start_that_is_known_is_not_asked_again(
    serve: Any, run_module: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    process = launcher.identity(os.getpid())
    places = {
        "processes/a-serve.json": {
            **{"cluster": "demo", "engine": "a", "argv": ["vllm"], "digest": "d"},
            **{"supervisor": "supervisord", "log": str(tmp_path / "log"), "log_offset": 0},
        },
        "processes/a-serve.state.json": {
            **{"boot_id": launcher.boot_id(), "launcher": process, "process": process},
            **{"instance": "i", "started_at": 1.0, "exit_status": None},
        },
    }
    (tmp_path / "processes").mkdir()
    for name, content in places.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "api_key").write_text(f"{KEY}\n")
    server = serve(answering(CHOICE))
    args = {
        "url": server.url,
        "api_key_file": str(tmp_path / "api_key"),
        "model": "m",
        "cluster": "demo",
        "cluster_dir": str(tmp_path),
        "process": "a-serve",
    }
    first = run_module("engine_fingerprint", args, [])
    assert first["asked"] and first["instance"] == "i" and not first["changed"]
    requests = len(server.requests)
    again = run_module("engine_fingerprint", {**args, "known": "i"}, [])
    assert not again["asked"] and len(server.requests) == requests
    assert run_module("engine_fingerprint", {**args, "known": "earlier"}, [])["asked"]
