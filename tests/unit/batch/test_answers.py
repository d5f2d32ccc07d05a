from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from vllm_ansible.batch.answers import NoAnswer, Stream, whole, words_of

TEXT = "Das ist schön 🙂, oder?"


def events(*contents: str, name: str = "content", end: bool = True) -> bytes:
    chunks = [{"choices": [{"delta": {name: one}}]} for one in contents]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}})
    data = [json.dumps(one, ensure_ascii=False) for one in chunks] + (["[DONE]"] if end else [])
    return "".join(f"data: {one}\r\n\r\n" for one in data).encode()


@given(some.lists(some.integers(0, 400), max_size=30))
def test_a_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    data = b": comment\n\n" + events("", *TEXT)
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    stream = Stream(0.0)
    for first, last in pairwise(places):
        stream.feed(data[first:last], 1.0)
    answer = stream.answer(2.0)
    assert (answer.text, answer.finish_reason) == (TEXT, "length")
    assert (answer.prompt_tokens, answer.completion_tokens) == (5, 9)


def test_the_first_token_is_the_first_that_says_something() -> None:
    stream = Stream(10.0)
    stream.feed(events("", end=False).partition(b"\r\n\r\n")[0] + b"\n", 11.0)
    for now in (12.0, 12.5, 13.5):
        stream.feed(b'data: {"choices": [{"delta": {"content": "x"}}]}\n', now)
    stream.feed(events(), 14.0)
    answer = stream.answer(15.0)
    assert (answer.ttft_ms, answer.total_ms) == (2000, 5000)
    assert (answer.itl_ms_median, answer.itl_ms_max) == (750, 1000)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_under_both_names(name: str) -> None:
    stream = Stream(0.0)
    stream.feed(events("hm, ", "well", name=name), 1.0)
    assert stream.answer(1.0).reasoning == "hm, well"
    message = {"content": None, name: "hm"}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    answer = whole(body, 0.0, 1.0)
    assert (answer.text, answer.reasoning, answer.completion_tokens) == ("", "hm", None)


@pytest.mark.parametrize("data", [b"", events("a")[:40], events("a", end=False)])
def test_a_stream_without_its_end_is_no_answer(data: bytes) -> None:
    stream = Stream(0.0)
    stream.feed(data, 1.0)
    with pytest.raises(NoAnswer, match="broke off"):
        stream.answer(1.0)


def test_an_error_in_the_middle_of_a_stream_is_none() -> None:
    with pytest.raises(NoAnswer, match="too long") as caught:
        Stream(0.0).feed(b'data: {"error": {"message": "too long", "code": 400}}\n', 1.0)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices": [1]}',
        b'{"choices": {"a": 1}}',
        b'{"choices": 1}',
        b'{"choices": [{"delta": {"content": 5}}]}',
        b'{"choices": [{"delta": [1]}]}',
        b'{"choices": [], "usage": 3}',
    ],
)
def test_a_part_of_something_else_is_no_answer(data: bytes) -> None:
    with pytest.raises(NoAnswer, match="not part of a chat completion"):
        Stream(0.0).feed(b"data: " + data + b"\n", 1.0)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"choices": []}', b'{"choices": [{}]}'])
def test_something_else_is_no_answer(body: bytes) -> None:
    with pytest.raises(NoAnswer):
        whole(body, 0.0, 1.0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"error": "Unauthorized"}', "Unauthorized"),
        (b'{"message": "no"}', "no"),
        (b"<h1>Bad\n  Gateway</h1>", "<h1>Bad Gateway</h1>"),
        (b"\xff" * 5000, "\ufffd" * 2000),
    ],
)
def test_the_servers_own_words_are_told(body: bytes, words: str) -> None:
    assert words_of(body) == words
