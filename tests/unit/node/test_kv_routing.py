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
    "sidecars": [{"process": "chat-sidecar-0"}, {"process": "chat-sidecar-1"}],
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
