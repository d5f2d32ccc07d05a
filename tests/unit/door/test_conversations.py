"""Requests of one conversation reach the engine whose cache holds its beginning."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from vllm_ansible.node.engine import haproxy_door

from .running import ALICE, Running, client, wait_until

SYSTEM = {"role": "system", "content": 'You answer in "one" [word]: {brief}.'}
Message = dict[str, Any]


def turns(user: int, first: str = "") -> list[list[Message]]:
    """Return the messages of three requests of one conversation."""
    said: list[Message] = [SYSTEM, {"role": "user", "content": first or f"I am user {user}."}]
    found = [list(said)]
    for turn in range(2):
        said += [
            {"role": "assistant", "content": f"Yes {turn}."},
            {"role": "user", "content": f"And {turn}?"},
        ]
        found.append(list(said))
    return found


def reached(running: Running, path: str = "chat/completions", **body: Any) -> int:
    """Return which engine a request of this body came to."""
    before = [len(engine.bodies) for engine in running.engines]
    assert running.ask("POST", f"/v1/{path}", {"model": "m", **body})[0] == 200
    (place,) = [
        place for place, engine in enumerate(running.engines) if len(engine.bodies) > before[place]
    ]
    return place


@pytest.fixture
def three(door: Callable[..., Running]) -> Running:
    clients = {"alice": client(ALICE)}
    return door(clients=clients, models=("m", "m", "m"), door_balance="conversations")


def test_all_turns_of_a_conversation_reach_one_engine_and_many_use_all(three: Running) -> None:
    by_user = [{reached(three, messages=said) for said in turns(user)} for user in range(24)]
    assert all(len(engines) == 1 for engines in by_user)
    used = [min(engines) for engines in by_user]
    assert {used.count(place) for place in range(3)} <= set(range(2, 16)), used


@pytest.mark.parametrize(
    "first",
    [
        [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": "data:x"}],
        'a \\\\ and a quote " and ]}',
        "",
    ],
)
def test_of_whatever_form_the_first_message_is(three: Running, first: Any) -> None:
    assert len({reached(three, messages=said) for said in turns(0, first)}) == 1


def test_a_prompt_of_text_is_known_by_its_beginning(three: Running) -> None:
    begun = {}
    for user in range(12):
        prompt = f"User {user} " + "tells a story. " * 40
        grown = [prompt, f"{prompt} And then?", f"{prompt} And then? No more."]
        engines = {reached(three, "completions", prompt=text) for text in grown}
        assert len(engines) == 1
        begun[user] = min(engines)
    assert len(set(begun.values())) > 1


def test_what_nothing_is_cached_of_is_spread(three: Running) -> None:
    used = [reached(three, "embeddings", input="the same") for _ in range(6)]
    assert set(used) == {0, 1, 2}


def test_a_client_cannot_name_its_engine(three: Running) -> None:
    (said, *_), name = turns(1), "x-conversation"
    body = {"model": "m", "messages": said}
    for given in ("0", "1", "2", "3"):
        assert three.ask("POST", "/v1/chat/completions", body, **{name: given})[0] == 200
    seen = {
        headers.get(name) or headers.get(name.title())
        for engine in three.engines
        for headers in engine.headers
    }
    assert len(seen) == 1 and len(min(filter(None, seen))) == 16


def test_an_engine_that_is_full_leaves_what_more_comes_to_others(three: Running) -> None:
    """One conversation asked twelve times at once: at most half as many again as the mean each."""
    asked = {"messages": turns(0)[0], "stream": True, "waits": True}
    threads = [threading.Thread(target=three.chat, kwargs=asked) for _ in range(12)]
    for thread in threads:
        thread.start()
    # None ends before all are there.
    wait_until(lambda: sum(len(engine.bodies) for engine in three.engines) == 12)
    for engine in three.engines:
        engine.finish.set()
    for thread in threads:
        thread.join()
    counts = sorted(len(engine.bodies) for engine in three.engines)
    assert counts[2] == 6, counts


def test_the_conversations_of_an_engine_that_is_gone_go_on_elsewhere(three: Running) -> None:
    conversations = [turns(user) for user in range(12)]
    before = [reached(three, messages=said[0]) for said in conversations]
    gone = before[0]
    three.engines[gone].end()
    wait_until(lambda: three.chat(messages=conversations[0][0])[0] == 200)
    after = [reached(three, messages=said[1]) for said in conversations]
    for place, now in zip(before, after, strict=True):
        assert now == place if place != gone else now != gone


@pytest.mark.parametrize("gone", [0, 1])
def test_an_engine_fewer_moves_no_conversation_of_the_others(
    three: Running, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    """Its place in the configuration is no other engine's, nor that of the same one elsewhere."""
    conversations = [turns(user)[0] for user in range(24)]
    before = [reached(three, messages=said) for said in conversations]
    (model,) = three.served()
    left = [one for place, one in enumerate(model["servers"]) if place != gone]
    monkeypatch.setattr(three, "served", lambda: [{**model, "servers": left[::-1]}])
    three.write("second")
    haproxy_door.reload(f"{three.run_dir}/master.sock")
    wait_until(lambda: three.digest() == "second")
    wait_until(lambda: three.ask("GET", "/health")[0] == 200)
    after = [reached(three, messages=said) for said in conversations]
    for place, now in zip(before, after, strict=True):
        assert now == place if place != gone else now != gone


def test_by_default_the_engine_with_the_fewest_requests_is_asked(
    door: Callable[..., Running],
) -> None:
    running = door(models=("m", "m"))
    assert {reached(running, messages=turns(0)[0]) for _ in range(4)} == {0, 1}
    assert not any("onversation" in name for name in running.engines[0].headers[0])
