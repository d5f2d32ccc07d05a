"""Requests in the forms of /v1/responses and /v1/messages, whole and as streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.emulators.metered_engine import KEY, OTHERS, PROMPT_TOKENS

from .running import ALICE, Running, client, wait_until

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
MOST = {RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}
both = pytest.mark.parametrize("path", [RESPONSES, MESSAGES])


@both
@pytest.mark.parametrize("pieces", [1 << 20, 64, 7])
def test_a_stream_is_what_the_engine_sent_and_its_usage_counts(
    running: Running, path: str, pieces: int
) -> None:
    before = running.used("alice")
    body = {"model": "m", "stream": True, MOST[path]: 6, "pieces": pieces}
    status, text, _ = running.ask("POST", path, body)
    assert (status, text) == (200, "".join(OTHERS[path](body)[1]))
    # It says by itself what it used, and is asked for nothing.
    assert running.engines[0].bodies[-1] == body
    assert running.grown(before) == (1, PROMPT_TOKENS, 6)


@both
def test_a_whole_answer_counts_whatever_its_client_had_it_repeat(
    running: Running, path: str
) -> None:
    before = running.used("alice")
    tools = [{"name": "t", "parameters": {"usage": {"input_tokens": 0, "output_tokens": 0}}}]
    body = {"model": "m", MOST[path]: 6, "tools": tools}
    assert running.ask("POST", path, body)[0] == 200
    assert running.grown(before) == (1, PROMPT_TOKENS, 6)


# One that hides figures of its own behind braces in a text, which end nothing.
HIDING = {"usage": {"x": "{{{", "prompt_tokens": 0, "completion_tokens": 0}}


@both
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_client_has_an_engine_repeat_hides_no_usage(
    running: Running, path: str, stream: bool
) -> None:
    before = running.used("alice")
    body = {"model": "m", "stream": stream, MOST[path]: 600, "tools": [HIDING]}
    assert running.ask("POST", path, body)[0] == 200
    assert running.grown(before) == (1, PROMPT_TOKENS, 600)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("size", [100_000, 900_000])
@pytest.mark.parametrize("pieces", [1 << 20, 16_384])
def test_an_event_of_any_length_goes_on_and_is_counted(
    running: Running, size: int, pieces: int, behind: bool
) -> None:
    """Longer than what is held back, before its usage or behind it: it goes on in parts."""
    before = running.used("alice")
    body = {"model": "m", "stream": True, MOST[RESPONSES]: 6, "pieces": pieces}
    body |= {"user": "x" * size} if behind else {"tools": [{"name": "x" * size}]}
    status, text, _ = running.ask("POST", RESPONSES, body)
    assert (status, text) == (200, "".join(OTHERS[RESPONSES](body)[1]))
    assert running.grown(before) == (1, PROMPT_TOKENS, 6)


def test_only_pieces_of_an_answer_are_tokens(running: Running) -> None:
    before = running.used("alice")
    tools = [{"type": "x.delta"}, {"type": "content_block_delta"}]
    for path in OTHERS:
        body = {"model": "m", "stream": True, MOST[path]: 2, "tools": tools}
        assert running.ask("POST", path, body)[0] == 200
    assert running.grown(before) == (2, 2 * PROMPT_TOKENS, 4)


@both
def test_a_stream_that_is_broken_off_counts_a_token_for_each_piece(
    door: Callable[..., Running], path: str
) -> None:
    running = door()
    engine = running.engines[0]
    body = {"model": "m", "stream": True, MOST[path]: 1_000, "pause": 0.02}
    connection, answer = running.send("POST", path, body)
    seen = 0
    while seen < 10:
        line = answer.readline()
        seen += line.startswith(b"data: {") and b'delta"' in line
    connection.close()
    wait_until(lambda: engine.given_up == 1)
    wait_until(lambda: running.used("alice")[2] >= 10)
    requests, read, made = running.used("alice")
    # A response says its prompt at its end alone.
    assert (requests, read) == (1, 0 if path == RESPONSES else PROMPT_TOKENS)
    assert 10 <= made <= engine.pieces


@pytest.mark.parametrize("asked", [True, "true", 1, "on"])
def test_an_answer_that_nobody_waits_for_is_refused(running: Running, asked: object) -> None:
    before = len(running.engines[0].bodies)
    status, text, _ = running.ask("POST", RESPONSES, {"model": "m", "background": asked})
    assert status == 400 and "background" in text
    assert len(running.engines[0].bodies) == before
    for off in (False, None):
        assert running.ask("POST", RESPONSES, {"model": "m", "background": off})[0] == 200


def test_messages_take_the_key_where_their_clients_send_it(running: Running) -> None:
    def asked(path: str, key: str, **headers: str) -> int:
        return running.ask("POST", path, {"model": "m"}, key, **headers)[0]

    assert asked(MESSAGES, "", **{"X-Api-Key": ALICE}) == 200
    assert "x-api-key" not in {name.lower() for name in running.engines[0].headers[-1]}
    assert running.engines[0].keys[-1] == f"Bearer {KEY}"
    assert asked(MESSAGES, "", **{"X-Api-Key": "wrong"}) == 401
    assert asked(MESSAGES, "wrong", **{"X-Api-Key": ALICE}) == 401
    assert asked(RESPONSES, "", **{"X-Api-Key": ALICE}) == 401


@both
def test_a_client_has_its_priority_and_gives_itself_no_other(
    door: Callable[..., Running], path: str
) -> None:
    running = door(clients={"alice": client(ALICE, priority=5)}, by_priority=("m",))
    engine = running.engines[0]
    body = {"model": "m", "priority": -1000}
    assert running.ask("POST", path, body, **{"X-Vllm-Priority": "-1000"})[0] == 200
    said = {name.lower(): value for name, value in engine.headers[-1].items()}
    if path == MESSAGES:
        assert said["x-vllm-priority"] == "5"
    else:
        assert engine.bodies[-1]["priority"] == 5
        assert "x-vllm-priority" not in said


@pytest.mark.parametrize("form", ["text", "items"])
def test_turns_of_responses_stay_with_one_engine(door: Callable[..., Running], form: str) -> None:
    running = door(models=("m", "m", "m"), door_balance="conversations")

    def reached(said: Any) -> int:
        before = [len(engine.bodies) for engine in running.engines]
        assert running.ask("POST", RESPONSES, {"model": "m", "input": said})[0] == 200
        after = [len(engine.bodies) for engine in running.engines]
        return next(place for place in range(3) if after[place] > before[place])

    used = set()
    for user in range(8):
        text = f"User {user} " + "tells a story. " * 40
        first: Any = text if form == "text" else [{"role": "user", "content": text}]
        more: Any = f"{text} And?" if form == "text" else [*first, {"role": "user", "content": "?"}]
        engines = {reached(first), reached(more)}
        assert len(engines) == 1
        used |= engines
    assert len(used) > 1
