"""Answers of real HTTP servers, in the form that vLLM documents."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from vllm_ansible.node.engine.completion import Unanswered, ask, judge, kept_stepping, status_of

Module = Callable[..., dict[str, Any]]
KEY = "k-123456"


def completion(text: str = "It is Paris.", logprob: float | None = -0.1) -> dict[str, Any]:
    content = [{"token": word, "logprob": logprob} for word in text.split()]
    message = {"role": "assistant", "content": text}
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": content}}
    return {"choices": [choice], "usage": {"completion_tokens": len(content)}}


def guarded(answer: Any, status: int = 200) -> Callable[[Any], tuple[int, Any]]:
    """Answer to whom has the key, as vLLM does with --api-key."""

    def reply(request: Any) -> tuple[int, Any]:
        if request.key != f"Bearer {KEY}":
            return 401, {"error": "Unauthorized"}
        return (status, answer) if request.path == "/v1/chat/completions" else (200, {})

    return reply


def asked(url: str, key: str = KEY, timeout: float = 10) -> dict[str, Any]:
    return ask(url, key, "m", "Which city?", 32, timeout)


@pytest.fixture
def garbage() -> Any:
    """Give the address of a server that speaks no HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        threading.Thread(target=speak, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def closed() -> str:
    """Return an address where nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


def test_one_greedy_question_is_asked_with_the_key(serve: Any) -> None:
    server = serve(guarded(completion()))
    reply = asked(server.url)
    assert reply | {"seconds": 0} == {
        "answer": "It is Paris.",
        "tokens": 3,
        "finish_reason": "stop",
        "logprobs": [-0.1] * 3,
        "words": ["It", "is", "Paris."],
        "seconds": 0,
    }
    (request,) = server.requests
    assert (request.path, request.key) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert request.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Which city?"}],
        "temperature": 0,
        "max_tokens": 32,
        "logprobs": True,
    }


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        ({"message": "The model `m` does not exist."}, 404, r"HTTP 404: .*`m` does not exist"),
        ("EngineDeadError", 500, "HTTP 500: EngineDeadError"),
        ("<html>", 200, "JSONDecodeError"),
        ({"choices": []}, 200, "IndexError"),
        ({"object": "error"}, 200, "KeyError: 'choices'"),
        ([], 200, "TypeError"),
        ({**completion(), "usage": None}, 200, "TypeError"),
        (None, 200, "IncompleteRead"),
    ],
)
def test_what_is_no_answer_is_told_in_the_servers_words(
    serve: Any, answer: Any, status: int, why: str
) -> None:
    with pytest.raises(Unanswered, match=why):
        asked(serve(guarded(answer, status)).url)


def test_a_refused_key_a_stranger_and_a_closed_port_are_no_answer(
    serve: Any, garbage: str, closed: str
) -> None:
    with pytest.raises(Unanswered, match="HTTP 401"):
        asked(serve(guarded(completion())).url, key="wrong")
    with pytest.raises(Unanswered, match="BadStatusLine"):
        asked(garbage)
    with pytest.raises(Unanswered, match="Connection refused"):
        asked(closed)


def test_a_slow_answer_is_waited_for_no_longer_than_asked(serve: Any) -> None:
    over = threading.Event()

    def hang(request: Any) -> tuple[int, Any]:
        over.wait(120)
        return 200, {}

    began = time.monotonic()
    try:
        with pytest.raises(Unanswered, match="timed out"):
            asked(serve(hang).url, timeout=0.2)
    finally:
        over.set()
    assert time.monotonic() - began < 60


def reply(**more: Any) -> dict[str, Any]:
    return {"answer": "It is Paris.", "tokens": 2, "logprobs": [-0.1, -2], **more}


@pytest.mark.parametrize(
    ("given", "expect", "why"),
    [
        (reply(), "Paris", ""),
        (reply(), "pARIS", ""),
        (reply(answer="xq"), "", ""),
        (reply(answer="", logprobs=[-0.1, -0.1]), "", "the answer is empty"),
        (reply(answer="It is Rome."), "Paris", "does not contain 'Paris': 'It is Rome.'"),
        (reply(tokens=0, logprobs=[]), "", "the answer has no tokens"),
        (reply(logprobs=[-0.1, float("nan")]), "", "1 of 2 tokens have a log probability of nan"),
        (reply(logprobs=[float("-inf"), -1]), "", "log probability of -inf"),
        # A server that cannot write NaN in JSON writes null.
        (reply(logprobs=[None, None]), "Paris", "2 of 2 tokens have a log probability of None"),
        (reply(logprobs=[]), "Paris", "no log probabilities"),
    ],
)
def test_only_a_right_answer_with_finite_numbers_is_a_proof(
    given: dict[str, Any], expect: str, why: str
) -> None:
    found = judge(given, expect)
    assert why in found and bool(found) == bool(why)


def garbage_of(answer: str, words: list[str], **more: Any) -> dict[str, Any]:
    logprobs = [-0.1 * (place + 1) for place in range(len(words))]
    return reply(answer=answer, words=words, tokens=len(words), logprobs=logprobs, **more)


# What engines have said that loaded half of their weights, or computed with broken kernels.
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (garbage_of("!!!!!!", ["!"] * 6), "no letter and no digit: '!!!!!!'"),
        (garbage_of("", ["<|im_end|>"]), "the answer is empty after 1 tokens"),
        (garbage_of(" \n\n", ["\n"] * 2), "the answer is empty after 2 tokens"),
        (garbage_of("the the the the", [" the"] * 4), "repeats one token 4 times"),
        (
            garbage_of("ia" * 4, ["ia"] * 4 + ["<end>"], finish_reason="stop"),
            "repeats one token 4 times",
        ),
    ],
)
def test_what_is_no_text_is_no_proof_also_where_nothing_is_expected(
    given: dict[str, Any], why: str
) -> None:
    assert why in judge(given, "")
    # Random weights may say just that; no trained model answers the default question so.
    assert judge(given, "", random=True) == ""
    assert "does not contain 'Paris'" in judge(given, "Paris")


def test_the_same_number_for_every_token_is_no_proof_of_random_weights_either() -> None:
    flat = reply(logprobs=[-10.8] * 8, tokens=8)
    assert "all 8 tokens have the same log probability -10.8" in judge(flat, "", random=True)
    # A model that is sure of every word has none left to be unsure of.
    assert judge(reply(logprobs=[0.0] * 8, tokens=8), "Paris") == ""


def test_paris_is_known_by_its_name_elsewhere() -> None:
    assert judge(reply(answer="法国的首都是巴黎。"), "Paris") == ""
    assert "'Rome'" in judge(reply(answer="Париж"), "Rome")


@pytest.mark.parametrize(
    ("given", "expect", "why"),
    [
        (reply(reasoning="France, so Paris."), "Paris", ""),
        # Thoughts that took all tokens: the parser works, and so does the model.
        (reply(reasoning="Paris?", answer="", finish_reason="length"), "Paris", ""),
        (reply(reasoning="Rome?", answer="", finish_reason="length"), "Paris", "'Rome?'"),
        (reply(reasoning="Paris.", answer="", finish_reason="stop"), "", "no answer after it"),
        (reply(reasoning="Paris.", answer="Rome."), "Paris", "does not contain 'Paris': 'Rome.'"),
        (reply(), "Paris", "without reasoning: reasoning_parser is another model's"),
        (reply(reasoning="\n"), "", "without reasoning"),
    ],
)
def test_an_engine_with_a_reasoning_parser_must_think_before_it_answers(
    given: dict[str, Any], expect: str, why: str
) -> None:
    found = judge(given, expect, reasoning=True)
    assert why in found and bool(found) == bool(why)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_read_by_either_of_its_names(serve: Any, name: str) -> None:
    answer = completion()
    answer["choices"][0]["message"] |= {name: "It is in France.", "content": None}
    found = asked(serve(guarded(answer)).url)
    assert (found["reasoning"], found["answer"]) == ("It is in France.", "")


def test_a_status_is_asked_for_without_a_key(serve: Any, garbage: str, closed: str) -> None:
    assert status_of(serve(lambda request: (200, "")).url) == 200
    assert status_of(serve(lambda request: (503, "")).url) == 503
    server = serve(guarded({}))
    assert status_of(f"{server.url}/v1/models") == 401
    assert server.requests[0].key == ""
    assert status_of(closed) == 0
    assert status_of(garbage) == 0


@pytest.fixture
def check(run_module: Module, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run the module against a server that answers so, as a task and in check mode."""
    key_file = tmp_path / "api_key"
    key_file.write_text(f"{KEY}\n")

    def run(url: str, **more: Any) -> dict[str, Any]:
        args = {"url": url, "model": "m", "api_key_file": str(key_file), "expect": "Paris", **more}
        results = [run_module("completion_check", args, [], check=dry) for dry in (False, True)]
        assert [one["ok"] for one in results] == [results[0]["ok"]] * 2
        assert not any(one["changed"] or KEY in str(one) for one in results)
        return results[0]

    return run


def test_the_module_passes_a_right_answer(serve: Any, check: Any) -> None:
    result = check(serve(guarded(completion())).url)
    assert result["ok"] and result["reason"] == "" and result["answer"] == "It is Paris."


def cut_at(room: int, most: int = 4096) -> Callable[[Any], tuple[int, Any]]:
    """Answer as a model that thinks aloud for so many tokens before it says Paris."""

    def reply(request: Any) -> tuple[int, Any]:
        if request.key != f"Bearer {KEY}" or request.body["max_tokens"] > most:
            return (401 if request.key != f"Bearer {KEY}" else 400), {"error": "no"}
        enough = request.body["max_tokens"] >= room
        said = completion("<think>Which one?</think>Paris." if enough else "<think> Which")
        said["choices"][0]["finish_reason"] = "stop" if enough else "length"
        return 200, said

    return reply


def test_the_module_gives_a_model_that_thinks_aloud_more_room(serve: Any, check: Any) -> None:
    result = check(serve(cut_at(200)).url)
    assert result["ok"] and "Paris" in result["answer"] and not result["wrong"]
    # Where the engine has no room for more, what it said is judged, and it said nothing.
    result = check(serve(cut_at(200, most=512)).url)
    assert result["wrong"] and "does not contain 'Paris': '<think> Which'" in result["reason"]


def test_the_module_tells_an_engine_that_must_not_serve_from_one_that_does_not(
    serve: Any, check: Any, closed: str
) -> None:
    assert check(serve(guarded(completion("It is Rome."))).url)["wrong"] is True
    assert check(serve(lambda request: (200, completion())).url)["wrong"] is True
    assert check(serve(guarded({}, 503)).url)["wrong"] is False
    assert check(closed)["wrong"] is False


def test_the_module_refuses_a_server_that_needs_no_key(serve: Any, check: Any) -> None:
    result = check(serve(lambda request: (200, completion())).url)
    assert not result["ok"] and result["reason"] == "the server answers /v1/models without a key"

    # As vLLM does by itself: its key guards /v1 alone.
    def half_guarded(request: Any) -> tuple[int, Any]:
        return (200, {}) if request.path == "/version" else guarded(completion())(request)

    result = check(serve(half_guarded).url)
    assert not result["ok"] and result["reason"] == "the server answers /version without a key"


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (completion("It is Rome."), 200, "does not contain 'Paris'"),
        (completion(logprob=float("nan")), 200, "3 of 3 tokens have a log probability of nan"),
        (completion(logprob=None), 200, "3 of 3 tokens have a log probability of None"),
        ({"error": "out of memory"}, 500, "HTTP 500"),
    ],
)
def test_the_module_fails_what_is_no_proof(
    serve: Any, check: Any, answer: Any, status: int, reason: str
) -> None:
    result = check(serve(guarded(answer, status)).url)
    assert not result["ok"] and reason in result["reason"]


def test_the_module_says_when_there_is_no_key_or_no_server(
    serve: Any, check: Any, closed: str, tmp_path: Path
) -> None:
    result = check(serve(guarded(completion())).url, api_key_file=str(tmp_path / "none"))
    assert not result["ok"] and "No such file" in result["reason"]
    assert "Connection refused" in check(closed)["reason"]


def test_a_rank_that_steps_only_with_all_others_is_asked_with_all_others_busy(
    serve: Any, closed: str
) -> None:
    """As the first engine of vLLM: one answers when every other has a request, too."""
    busy = [threading.Event(), threading.Event()]

    def idle(mine: threading.Event) -> Callable[[Any], tuple[int, Any]]:
        def reply(request: Any) -> tuple[int, Any]:
            mine.set()
            return guarded(completion())(request)

        return reply

    def stepping(request: Any) -> tuple[int, Any]:
        together = all(one.wait(60) for one in busy)
        return guarded(completion() if together else {})(request)

    others = [serve(idle(one)).url for one in busy]
    asked_one = serve(stepping)
    # One that nobody answers at is tried again and again, and keeps no answer back.
    with kept_stepping([*others, closed], KEY, "m"):
        assert asked(asked_one.url, timeout=120)["answer"] == "It is Paris."
