"""A LoRA adapter of a real engine, asked for through the door by its own name."""

from __future__ import annotations

import json
import random
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.door.running import HAPROXY, Running, client
from vllm_ansible.door.served import models

from .serving import Served, fetched, served

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


@pytest.fixture
def asked(
    engine: Path, tmp_path: Path, weights_request: dict[str, Any]
) -> Iterator[tuple[Served, list[str]]]:
    """Return an engine with an adapter `law`, and its arguments."""
    write_adapter(tmp_path / "law")
    arguments = ["--enable-lora", "--max-lora-rank", str(RANK), "--dtype", "float32"]
    arguments += ["--lora-modules", f"law={tmp_path}/law", "--kv-cache-memory-bytes", str(1 << 28)]
    model = fetched(tmp_path, weights_request)
    with served(engine, tmp_path / "log", model, *arguments) as one:
        one.ready()
        yield one, arguments


def test_a_client_gets_the_adapter_by_its_name_and_nothing_else(
    asked: tuple[Served, list[str]], tmp_path: Path
) -> None:
    one, arguments = asked
    planned = {
        **{"name": "chat", "served_name": "chat", "hosts": ["here"], "arguments": arguments},
        **{
            "layout": {"data": 1},
            "ports": {"api": one.port},
            "ranks": [{"host": "here", "device": 0}],
        },
    }
    clients = {"all": client("all-key"), "law": client("law-key", models=("law",))}
    with Running(
        tmp_path,
        clients=clients,
        engines=[one],  # type: ignore[list-item] # a model and a port are all that it needs
        offered=models([planned], [HOST], {}),
    ) as door:
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
