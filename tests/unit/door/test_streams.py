"""Streams go through as the client asked for them, piece by piece, and are counted all the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.metered_engine import PROMPT_TOKENS, events, used

from .running import ALICE, Running, with_line

WANTED: list[dict[str, Any]] = [
    {},
    {"stream_options": None},
    {"stream_options": {"include_usage": False}},
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
]


@pytest.mark.parametrize("pieces", [1 << 20, 64, 7])
@pytest.mark.parametrize("options", WANTED)
def test_a_stream_is_byte_for_byte_what_the_client_asked_for(
    running: Running, options: dict[str, Any], pieces: int
) -> None:
    """The engine is asked for its usage in any case, whatever it is cut into on the way."""
    before = running.used("alice")
    body = {"stream": True, "max_tokens": 4, "pieces": pieces, **options}
    status, text, _ = running.chat(**body)
    assert status == 200
    assert text == "".join(f"data: {one}\n\n" for one in events(body))
    asked = running.engines[0].bodies[-1]["stream_options"]
    assert asked == {"include_usage": True, "continuous_usage_stats": True}
    after = running.used("alice")
    grown = [late - early for early, late in zip(before, after, strict=True)]
    assert grown == [1, PROMPT_TOKENS, used(4)["completion_tokens"]]


# The slow one takes longer than the 4 s that HAProxy gives a function of Lua.
@pytest.mark.parametrize(
    "how", [{"pause": 0.001}, {"pause": 0.02}, {"pieces": 300}, {"pause": 0.001, "n": 3}]
)
@pytest.mark.parametrize("options", [WANTED[0], WANTED[3], WANTED[4]])
def test_a_long_stream_is_what_the_client_asked_for(
    running: Running, options: dict[str, Any], how: dict[str, Any]
) -> None:
    """Most of its pieces are counted in another way than the first ones."""
    tokens = 300
    before = running.used("alice")
    body = {"stream": True, "max_tokens": tokens, **how, **options}
    status, text, _ = running.chat(**body)
    assert status == 200
    assert text == "".join(f"data: {one}\n\n" for one in events(body))
    after = running.used("alice")
    grown = [late - early for early, late in zip(before, after, strict=True)]
    assert grown == [1, PROMPT_TOKENS, tokens * how.get("n", 1)]


def test_most_pieces_need_no_call(door: Callable[..., Running], tmp_path: Path) -> None:
    """What HAProxy finds in place of a function, it takes for the length that goes on."""
    program = with_line("usage.lua:function Usage:http_payload", 'core.Alert("called")', tmp_path)
    running = door(door_program=program)

    def calls(pause: float) -> int:
        before = running.log.read_text().count("called")
        body = {"stream": True, "max_tokens": 300, "pause": pause}
        status, text, _ = running.chat(**body)
        assert (status, text) == (200, "".join(f"data: {one}\n\n" for one in events(body)))
        return running.log.read_text().count("called") - before

    # Where a busy machine joins pieces, each of those needs one: fewer the slower they are made.
    assert any(0 < calls(pause) < 50 for pause in (0.002, 0.01, 0.05, 0.2))


def test_a_slow_stream_after_many_events_at_once_goes_on_to_its_end(running: Running) -> None:
    """As of a client that reads nothing for a while; HAProxy looks every 10,000 steps for 4 s."""
    bodies = [
        {"stream": True, "max_tokens": burst + 12, "pause": 0.5, "burst": burst}
        for burst in range(30, 66, 3)
    ]
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda body: running.chat(**body), bodies))
    for body, (status, text, _) in zip(bodies, answers, strict=True):
        assert status == 200
        assert text == "".join(f"data: {one}\n\n" for one in events(body)), body


def test_what_fails_at_once_is_counted_by_the_function(
    door: Callable[..., Running], tmp_path: Path
) -> None:
    program = with_line("usage.lua:function Usage.at_once", 'error("broken")', tmp_path)
    running = door(door_program=program)
    body = {"stream": True, "max_tokens": 50, "pause": 0.002}
    status, text, _ = running.chat(**body)
    assert (status, text) == (200, "".join(f"data: {one}\n\n" for one in events(body)))
    assert running.used("alice") == (1, PROMPT_TOKENS, 50)


def test_what_is_no_stream_goes_on_as_it_was_sent(running: Running) -> None:
    sent = json.dumps({"model": "m", "stream": False, "max_tokens": 2})
    assert running.ask("POST", "/v1/completions", sent)[0] == 200
    engine = running.engines[0]
    assert engine.lengths[-1] == len(sent)
    assert "stream_options" not in engine.bodies[-1]


def test_requests_of_one_connection_are_counted_each_for_itself(running: Running) -> None:
    before = running.used("alice")
    connection = running.connect()
    headers = {"Authorization": f"Bearer {ALICE}"}
    for stream, tokens in ((True, 3), (False, 2), (True, 1)):
        body = {"model": "m", "stream": stream, "max_tokens": tokens}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 200
        assert (b"[DONE]" in answer.read()) == stream
    connection.close()
    after = running.used("alice")
    assert [late - early for early, late in zip(before, after, strict=True)] == [3, 21, 6]


def test_pieces_arrive_as_they_are_made(door: Callable[..., Running]) -> None:
    running = door()

    def seconds(pause: float) -> float:
        """Return how long after the first piece the last one came."""
        body = {"model": "m", "stream": True, "max_tokens": 8, "pause": pause}
        connection, answer = running.send("POST", "/v1/chat/completions", body)
        times = []
        while line := answer.readline():
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
        connection.close()
        assert len(times) == 9
        return times[-1] - times[0]

    # Held back by a buffer, all would come at once, at the end, however slow they are made; what
    # waits for a processor gets some at once, and fewer of them the slower they are made.
    assert any(seconds(pause) > 4 * pause for pause in (0.1, 0.3, 1.0, 3.0))
