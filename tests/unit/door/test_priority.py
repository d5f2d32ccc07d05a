"""A client has the priority that its file gives it, where engines serve by priority."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .running import ALICE, Running, client


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_cannot_give_itself_another_priority(
    door: Callable[..., Running], stream: bool
) -> None:
    clients = {"alice": client(ALICE, priority=-5), "bob": client("bob-key")}
    running = door(clients=clients, models=("m", "n"), by_priority=("m",))
    own, other = running.engines
    for key, expected in ((ALICE, -5), ("bob-key", 0)):
        for wanted in ({}, {"priority": -1000}):
            body: dict[str, Any] = {"model": "m", "stream": stream, **wanted}
            status, text, _ = running.ask(
                "POST", "/v1/completions", body, key, **{"X-Vllm-Priority": "-1000"}
            )
            assert (status, "[DONE]" in text) == (200, stream)
            assert own.bodies[-1]["priority"] == expected
            assert "x-vllm-priority" not in {name.lower() for name in own.headers[-1]}
    # An engine that serves in the order of arrival gets what its client has sent.
    assert running.ask("POST", "/v1/completions", {"model": "n", "stream": stream})[0] == 200
    assert "priority" not in other.bodies[-1]
    # Of the engines of one model, only some may serve by priority.
    body = {"model": "n", "stream": stream, "priority": -1000}
    assert running.ask("POST", "/v1/completions", body)[0] == 200
    assert other.bodies[-1]["priority"] == 0
    assert own.lengths[0] == len(
        json.dumps({"model": "m", "stream": stream})
        + ',"priority":-5'
        + ',"stream_options":{"include_usage":true,"continuous_usage_stats":true}' * stream
    )
