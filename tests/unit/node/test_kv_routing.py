"""Where a repeated prompt is hit, asked of a stand-in; the gate over it passes and fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulators.kv_front import BLOCK, KEY, Front
from vllm_ansible.node import kv_routing
from vllm_ansible.node.engine.completion import Unanswered
from vllm_ansible.plan import dynamo

WANTED: dict[str, Any] = {
    "process": "chat-dynamo",
    "nats": {"process": "chat-nats"},
    "host": "n1",
    "sidecars": [
        {"process": f"chat-sidecar-{rank}", "host": f"n{rank + 1}", "server": f"rank{rank}"}
        for rank in (0, 1)
    ],
}


def look(front: Front, key: str = KEY) -> dict[str, Any]:
    return kv_routing.look(front.url, front.url, front.servers, key, "m", 0.3, 30)


def missed(found: dict[str, Any]) -> list[str]:
    judged = dynamo.measurements(found, WANTED, "n1", "/logs")
    return [str(one["what"]) for one in judged if not one["ok"]]


def test_repeats_at_the_engine_that_knows_them_pass_the_gate() -> None:
    with Front() as front:
        found = look(front)
        assert found["workers"] == 2
        assert found["block_size"] == BLOCK
        assert found["events"] == kv_routing.BLOCKS
        assert missed(found) == []
        # Another run asks what nobody has asked.
        assert look(front)["events"] == kv_routing.BLOCKS


def test_events_that_are_cut_off_fail_the_gate() -> None:
    """Requests go by turns then, and each engine has half of the repeats."""
    with Front(events=False) as front:
        found = look(front)
    assert found["events"] == 0
    assert missed(found) == [
        "KV events applied by the router",
        "a repeated prefix at the engine that has it in its cache",
    ]


def test_an_engine_that_never_came_fails_the_gate() -> None:
    with Front(engines=1) as front:
        front.servers.append(f"{front.url}/engine/1")
        assert missed(look(front)) == ["every engine known to Dynamo"]


def test_an_engine_that_is_listed_twice_is_one() -> None:
    with Front(stale=1) as front:
        assert look(front)["workers"] == 2


def test_an_engine_of_a_host_that_was_replaced_is_listed_and_does_not_count() -> None:
    """Its lease ends after minutes, and its sidecar is at an address that nobody has any more."""
    planned = ["127.0.0.1:9000", "10.0.0.2:9001"]
    with Front() as front:
        assert kv_routing.wait_for_workers(front.url, 2, 0) == 2
        assert kv_routing.wait_for_workers(front.url, 2, 0, planned) == 1
        assert kv_routing.state(front.url, 2, 0, [planned[0], "127.0.0.1:9001"])["workers"] == 2


def in_turns(front: Front, key: str = KEY) -> dict[str, Any]:
    """Return what is found where each engine's counters can be read on its own host alone."""
    wanted = {
        **WANTED,
        "sidecars": [
            {**one, "server": server}
            for one, server in zip(WANTED["sidecars"], front.servers, strict=True)
        ],
    }
    results = []
    for one in dynamo.turns(wanted, "now"):
        found: dict[str, Any] = {"hits": kv_routing.hits(one["servers"], 30)}
        if one["part"] != "hits":
            routing = kv_routing.Routing(front.url, front.url, key, "m", 30, one["seed"])
            asked = routing.first(0.3) if one["part"] == "first" else routing.repeat(one["number"])
            found = {"workers": 2, **asked} if isinstance(asked, dict) else {"prompt_tokens": asked}
        results.append({"item": one, "reason": "", **found})
    return dynamo.looked(results, wanted)


def test_engines_of_several_hosts_are_judged_by_what_each_host_reads() -> None:
    with Front() as front:
        found = in_turns(front)
        assert len(found["repeats"]) == kv_routing.REPEATS
        assert missed(found) == []
        # All calls of one gate ask one prompt, which the next gate does not ask again.
        assert found["prompt_tokens"] == kv_routing.BLOCKS * BLOCK + 1
    with Front(events=False) as front:
        assert missed(in_turns(front)) == [
            "KV events applied by the router",
            "a repeated prefix at the engine that has it in its cache",
        ]


def test_a_host_that_cannot_be_asked_fails_the_gate_by_its_name() -> None:
    turns = dynamo.turns(WANTED, "now")
    for bad in ({"reason": "HTTP 503: none"}, {"failed": True, "msg": "HTTP 503: none"}):
        results = [{"item": one, "reason": "", "hits": [0]} for one in turns]
        results[2] |= bad
        found = dynamo.looked(results, WANTED)
        assert found == {"reason": "n2: HTTP 503: none"}
        assert missed(found) == ["an answer to each repeat of a prompt"]


def test_a_question_that_is_refused_is_told_with_the_server_s_words() -> None:
    with Front() as front, pytest.raises(Unanswered, match="HTTP 401: no key"):
        look(front, key="another")


def test_what_dynamo_knows_is_read_without_a_question() -> None:
    with Front() as front:
        assert kv_routing.state(front.url, 2, 0) == {"workers": 2, "events": 0}
        assert front.asked == 0
        look(front)
        assert kv_routing.state(front.url, 2, 0)["events"] == kv_routing.BLOCKS
    # Nobody answers.
    assert kv_routing.state(front.url, 2, 0) == {"workers": 0, "events": 0}


@pytest.mark.parametrize("text", ["", "# a comment", "hits{a} x", "other 3"])
def test_a_metric_that_is_not_there_counts_nothing(text: str) -> None:
    assert kv_routing.total(text, "hits") == 0
