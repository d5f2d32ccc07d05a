"""A real engine with a LoRA adapter behind the door: by its own name, in each form of a request."""

from __future__ import annotations

import json
import random
import re
import struct
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
