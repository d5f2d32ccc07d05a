"""A real engine with a LoRA adapter behind the door: by its own name, in each form of a request."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import subprocess
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.door.running import HAPROXY, Running, client
from vllm_ansible.door.served import models

from .serving import fetched, served

pytestmark = [
    pytest.mark.engine,
    pytest.mark.soak,
    pytest.mark.skipif(HAPROXY is None, reason="no haproxy on this machine"),
]
RANK, HIDDEN, LAYERS = 8, 576, 30
CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "target_modules": ["q_proj"]}
HOST = {"name": "here", "address": "127.0.0.1"}


def write_adapter(place: Path) -> None:
    """Write an adapter of SmolLM2 whose numbers nobody trained."""
    place.mkdir()
    numbers, header, data = random.Random(7), {}, b""  # noqa: S311 - no secret is made of them
    for layer in range(LAYERS):
        for name, shape in (("lora_A", [RANK, HIDDEN]), ("lora_B", [HIDDEN, RANK])):
            begin = len(data)
            data += array("f", (numbers.gauss(0, 0.3) for _ in range(RANK * HIDDEN))).tobytes()
            key = f"base_model.model.model.layers.{layer}.self_attn.q_proj.{name}.weight"
            header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    weights = struct.pack("<Q", len(text)) + text + data
    (place / "adapter_model.safetensors").write_bytes(weights)
    (place / "adapter_config.json").write_text(json.dumps(CONFIG))


@pytest.fixture(scope="module")
def planned(
    engine: Path, tmp_path_factory: pytest.TempPathFactory, weights_request: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Return a real engine with an adapter `law`, as a plan has it."""
    directory = tmp_path_factory.mktemp("engine")
    write_adapter(directory / "law")
    arguments = ["--enable-lora", "--max-lora-rank", str(RANK), "--dtype", "float32"]
    arguments += ["--lora-modules", f"law={directory}/law", "--kv-cache-memory-bytes", str(1 << 28)]
    model = fetched(directory, weights_request)
    with served(engine, directory / "log", model, *arguments) as one:
        one.ready()
        yield {
            **{"name": "chat", "served_name": "chat", "hosts": ["here"], "arguments": arguments},
            **{"layout": {"data": 1}, "ports": {"api": one.port}},
            "ranks": [{"host": "here", "device": 0}],
        }


@pytest.fixture
def door(planned: dict[str, Any], tmp_path: Path) -> Iterator[Running]:
    clients = {"all": client("all-key"), "law": client("law-key", models=("law",))}
    offered = models([planned], [HOST], {})
    with Running(tmp_path, clients=clients, engines=[], offered=offered) as running:
        yield running


def test_a_client_gets_the_adapter_by_its_name_and_nothing_else(door: Running) -> None:
    body = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    base, law, refused = (
        door.ask("POST", "/v1/completions", {**body, "model": model}, key)
        for model, key in (("chat", "all-key"), ("law", "law-key"), ("chat", "law-key"))
    )
    assert (base[0], law[0], refused[0]) == (200, 200, 403)
    answers = [json.loads(text) for _, text, _ in (base, law)]
    texts = [one["choices"][0]["text"] for one in answers]
    assert "Paris" in texts[0] and texts[0] != texts[1], texts
    assert [one["model"] for one in answers] == ["chat", "law"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_what_an_answer_used_is_counted_as_the_engine_says(
    door: Running, path: str, stream: bool
) -> None:
    said = [{"role": "user", "content": "What is the capital of France?"}]
    responses = path == "/v1/responses"
    body = {"input": said, "max_output_tokens": 7} if responses else {"messages": said}
    body |= {"model": "chat", "stream": stream, "temperature": 0}
    body |= {} if responses else {"max_tokens": 7}
    status, text, _ = door.ask("POST", path, body, "all-key")
    # A stream has one of its answer in each piece, and says its usage at its end.
    found = re.findall(r'"usage":{"input_tokens":(\d+).*?"output_tokens":(\d+)', text)
    assert status == 200 and found, text
    assert ("Paris" in text) or stream, text
    read, made = map(int, found[-1])
    assert door.used("all") == (1, read, made) and made == 7 and read > 10


# As an application asks: the key of messages goes where Anthropic's client puts it.
APPLICATION = """
import json, sys
import anthropic, openai
address, question = sys.argv[1], [{"role": "user", "content": "What is the capital of France?"}]
one = openai.OpenAI(base_url=address + "/v1", api_key="all-key")
two = anthropic.Anthropic(base_url=address, api_key="all-key")
first = {"temperature": 0}
found = {"models": [it.id for it in one.models.list()]}
answer = one.responses.create(model="chat", input=question, temperature=0, max_output_tokens=9)
found["response"] = answer.output_text
with one.responses.stream(
    model="chat", input=question, temperature=0, max_output_tokens=9
) as events:
    found["streamed response"] = events.get_final_response().output_text
answer = two.messages.create(model="chat", messages=question, max_tokens=9, extra_body=first)
found["message"] = answer.content[0].text
with two.messages.stream(model="chat", messages=question, max_tokens=9, extra_body=first) as events:
    found["streamed message"] = events.get_final_text()
found["tokens"] = two.messages.count_tokens(model="chat", messages=question).input_tokens
try:
    two.with_options(api_key="wrong", max_retries=0).messages.create(
        model="chat", messages=question, max_tokens=1
    )
except anthropic.AuthenticationError as error:
    found["refused"] = error.status_code
print(json.dumps(found))
"""


def test_the_clients_of_openai_and_anthropic_are_served(
    door: Running, engine: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [str(engine / "bin/python"), "-c", APPLICATION, f"https://127.0.0.1:{door.port}"],
        env={**os.environ, "SSL_CERT_FILE": str(tmp_path / "tls.crt")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["models"], found["refused"]) == (["chat", "law"], 401)
    answers = [text for name, text in found.items() if "response" in name or "message" in name]
    assert len(answers) == 4 and all("Paris" in text for text in answers), found
    assert found["tokens"] > 10
