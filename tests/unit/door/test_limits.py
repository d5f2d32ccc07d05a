"""Limits hold to the request and to the token, and outlive HAProxy."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.emulators.metered_engine import PROMPT_TOKENS, events

from .running import ALICE, Running, client, wait_until


def test_requests_a_minute_are_counted_to_the_request(door: Callable[..., Running]) -> None:
    running = door(
        clients={"alice": client(ALICE, requests_per_minute=5), "bob": client("bob-key")}
    )
    assert [running.chat()[0] for _ in range(5)] == [200] * 5
    for _ in range(2):
        status, text, headers = running.chat()
        error = json.loads(text)["error"]
        assert (status, error["code"]) == (429, "rate_limit_exceeded")
        assert "5 requests a minute" in error["message"]
        assert 1 <= int(headers["retry-after"]) <= 60
    assert len(running.engines[0].bodies) == 5
    assert running.chat("bob-key")[0] == 200
    # What is refused before it is sent to an engine takes nothing of the limit.
    assert running.used("alice")[0] == 5


def test_requests_at_once_are_counted_to_the_request(door: Callable[..., Running]) -> None:
    running = door(clients={"alice": client(ALICE, at_once=2)})
    engine = running.engines[0]
    waits = {"stream": True, "waits": True, "max_tokens": 1}
    held = [threading.Thread(target=running.chat, kwargs=waits) for _ in range(2)]
    for one in held:
        one.start()
    wait_until(lambda: len(engine.bodies) == 2)
    status, text, headers = running.chat()
    assert (status, headers["retry-after"]) == (429, "1")
    assert "2 requests at once" in json.loads(text)["error"]["message"]
    engine.finish.set()
    for one in held:
        one.join()
    assert running.chat()[0] == 200
    assert len(engine.bodies) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_a_day_are_counted_to_the_token(door: Callable[..., Running], stream: bool) -> None:
    """Three answers of 7 + 5 tokens: with 36 a day none is left, with 37 one is."""
    limits = {"alice": 36, "bob": 37}
    running = door(
        clients={name: client(f"{name}-key", tokens_per_day=most) for name, most in limits.items()}
    )
    for name in limits:
        asked = [running.chat(f"{name}-key", stream=stream, max_tokens=5)[0] for _ in range(3)]
        assert asked == [200] * 3
        assert running.used(name) == (3, 3 * PROMPT_TOKENS, 15)
    status, text, headers = running.chat("alice-key", stream=stream)
    assert status == 429
    assert "36 tokens of this day" in json.loads(text)["error"]["message"]
    assert 1 <= int(headers["retry-after"]) <= 86400
    assert running.chat("bob-key", stream=stream)[0] == 200
    assert running.chat("bob-key", stream=stream)[0] == 429


def test_figures_behind_the_usage_and_texts_like_it_change_no_count(
    door: Callable[..., Running],
) -> None:
    running = door()
    assert running.chat(max_tokens=3, extra=100_000)[0] == 200
    assert running.used("alice") == (1, PROMPT_TOKENS, 3)
    lower = {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
    assert running.chat(max_tokens=3, kv_transfer_params=lower)[0] == 200
    assert running.used("alice") == (2, 2 * PROMPT_TOKENS, 6)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_counts_outlive_haproxy(door: Callable[..., Running], number: int) -> None:
    running = door(
        clients={
            "alice": client(ALICE, requests_per_minute=3),
            "bob": client("bob-key", tokens_per_day=20),
        }
    )
    for key in (ALICE, "bob-key"):
        assert [running.chat(key, max_tokens=5)[0] for _ in range(2)] == [200, 200]
    running.stop(number)
    running.start()
    assert [running.chat(key)[0] for key in (ALICE, ALICE, "bob-key")] == [200, 429, 429]


def test_an_answer_that_is_broken_off_counts_as_far_as_it_came(
    door: Callable[..., Running],
) -> None:
    running = door()
    engine = running.engines[0]
    # It does not come to its end, whenever it is broken off.
    body = {"model": "m", "stream": True, "max_tokens": 100_000, "pause": 0.02}
    connection, answer = running.send("POST", "/v1/chat/completions", body)
    seen = 0
    while seen < 11:  # the first one holds no token
        seen += answer.readline().startswith(b"data: {")
    connection.close()
    wait_until(lambda: engine.given_up == 1)
    wait_until(lambda: running.used("alice")[2] >= 10)
    requests, read, made = running.used("alice")
    assert (requests, read) == (1, PROMPT_TOKENS)
    # What was on its way counts, and nothing of what never was made.
    assert 10 <= made <= engine.pieces


@pytest.mark.parametrize(
    ("prompts", "n", "pieces"),
    [(1, 3, 1 << 20), (1, "3", 1 << 20), (2, 3.0, 1 << 20), (2, 3, 64)],
)
def test_a_stream_without_its_end_counts_each_of_its_choices(
    running: Running, prompts: int, n: object, pieces: int
) -> None:
    """The engine says of all together only at the end, which a client need not wait for."""
    body: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": 4, "n": n}
    if prompts > 1:
        body["prompt"] = ["one"] * prompts
    for cut in (2, 0):
        before = running.used("alice")
        text = running.ask("POST", "/v1/completions", {**body, "pieces": pieces, "cut": cut})[1]
        assert text == "".join(f"data: {one}\n\n" for one in events(body)[: -1 if cut else None])
        assert running.grown(before) == (1, PROMPT_TOKENS * prompts, 4 * 3 * prompts)


@pytest.mark.parametrize("odd", ['"\\u0033"', '" 3"'])
def test_a_number_of_choices_that_is_written_oddly_hides_none(running: Running, odd: str) -> None:
    before = running.used("alice")
    text = f'{{"model": "m", "stream": true, "max_tokens": 4, "cut": 2, "n": {odd}}}'
    assert running.ask("POST", "/v1/completions", text)[0] == 200
    requests, read, made = running.grown(before)
    assert (requests, made) == (1, 12)
    assert read >= PROMPT_TOKENS
