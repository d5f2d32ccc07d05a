"""What is moved from prefill to decode, asked of a stand-in; the gate over it passes and fails."""

from __future__ import annotations

from typing import Any

from tests.emulators.pair_front import KEY, Pair
from vllm_ansible.node import kv_transfer
from vllm_ansible.plan import pairs

WANTED: dict[str, Any] = {
    "process": "write-pairs",
    "sized": True,
    "prefill": [{"engine": "read", "url": ""}],
    "decode": [{"engine": "write", "url": ""}],
}
PAIR = "the KV cache of a new prompt moved from read to write"
CLIENT = "the KV cache of a new prompt moved when a client asks"


def look(pair: Pair, key: str = KEY, wait: float = 0.3, sized: bool = True) -> dict[str, Any]:
    prefill = [{"engine": "read", "url": pair.prefill}]
    decode = [{"engine": "write", "url": pair.decode}]
    return kv_transfer.look(pair.url, prefill, decode, key, "m", wait, 30, sized)


def missed(found: dict[str, Any], wanted: dict[str, Any] = WANTED) -> dict[str, str]:
    judged = pairs.measurements(found, wanted, "n1", "/logs")
    return {str(one["what"]): str(one["found"]) for one in judged if not one["ok"]}


def test_what_is_fetched_passes_the_gate() -> None:
    with Pair() as pair:
        found = look(pair)
    assert missed(found) == {}
    assert found["front"]["remote"] == found["front"]["tokens"] == kv_transfer.WORDS
    assert "300 of 300 prompt tokens moved (13.8 MB)" in pairs.summary("write", found, WANTED)


def test_prompts_of_other_clients_are_not_taken_for_this_one() -> None:
    with Pair(beside=True) as pair:
        assert missed(look(pair, wait=60)) == {}


def test_a_front_that_asks_decode_alone_fails_the_gate() -> None:
    """Each answer is right, and prefill does nothing: decode computes the prompt itself."""
    with Pair(asks_prefill=False) as pair:
        said = missed(look(pair))
    assert said == {CLIENT: "0 of 300 tokens, 0 bytes, 0 failed transfers"}


def test_prefill_that_keeps_nothing_fails_the_gate() -> None:
    with Pair(keeps=False) as pair:
        said = missed(look(pair))
    assert "the answer of prefill has no kv_transfer_params" in said[PAIR]
    assert said[CLIENT] == "0 of 300 tokens, 0 bytes, 0 failed transfers"


def test_a_transfer_that_fails_is_told_with_the_engine_s_words() -> None:
    with Pair(moves=False) as pair:
        said = missed(look(pair))
    assert "HTTP 500" in said[PAIR] and "KV load failed" in said[PAIR]
    assert "KV load failed" in said[CLIENT]


def test_without_the_key_nothing_was_moved() -> None:
    with Pair() as pair:
        assert "HTTP 401: no key" in missed(look(pair, "another"))[PAIR]


def test_where_bytes_are_not_counted_the_tokens_that_came_are_judged() -> None:
    """As by vLLM's Rust front end: its counters of NIXL stay at 0."""
    wanted = {**WANTED, "sized": False}
    with Pair(sized=False) as pair:
        # Not waited for what never comes.
        found = look(pair, wait=600, sized=False)
        assert set(missed(found)) == {PAIR, CLIENT}
    assert missed(found, wanted) == {}
    assert "300 of 300 prompt tokens moved" in pairs.summary("write", found, wanted)
    assert "MB" not in pairs.summary("write", found, wanted)
    with Pair(asks_prefill=False, sized=False) as pair:
        said = missed(look(pair, sized=False), wanted)
    assert said[CLIENT].startswith("0 of 300 tokens, bytes not counted by the Rust front end")


def test_a_pair_that_nobody_asked_fails_the_gate() -> None:
    assert set(missed({})) == {PAIR, CLIENT}
    assert missed({"reason": "no key"})[PAIR] == "no key"
    half = {"tokens": 300, "remote": 269, "bytes": 1, "failed": 0}
    whole = {"prefill": "read", "decode": "write", **half, "remote": 270}
    assert set(missed({"pairs": [whole], "front": half})) == {CLIENT}
    assert set(missed({"pairs": [{**whole, "failed": 1}], "front": whole})) == {PAIR}
    assert set(missed({"pairs": [whole], "front": {**whole, "bytes": 0}})) == {CLIENT}
