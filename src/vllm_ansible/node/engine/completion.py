"""Ask a served model a question, and judge the answer; standard library only."""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .http_answer import open_request

STEP_SECONDS = 60
RETRY_SECONDS = 0.5
# Thoughts that no parser tells from the answer, and long beginnings, come before what is expected.
LONGER = 32
# A model may answer in the language it knows best.
ELSEWHERE = {
    "paris": ("париж", "巴黎", "パリ", "파리", "باريس", "پاریس", "פריז", "पेरिस", "ปารีส", "παρίσι")
}
FEWEST_REPEATED = 4


class Unanswered(Exception):
    """The server did not answer the question, with why."""


def status_of(url: str, timeout: float = 10) -> int:
    """Return the HTTP status of a GET without a key, 0 when nothing answers."""
    try:
        with open_request(urllib.request.Request(url), timeout) as response:  # noqa: S310 - http by plan
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, http.client.HTTPException):  # nobody, or somebody who speaks no HTTP
        return 0


def ask(
    base_url: str, key: str, model: str, question: str, max_tokens: int, timeout: float
) -> dict[str, Any]:
    """Return `answer`, `tokens`, `finish_reason`, `logprobs`, `words`, `seconds` of a completion.

    `reasoning` is there where a parser has told it from the answer. Raises Unanswered with the
    server's own words.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "logprobs": True,
    }
    request = urllib.request.Request(  # noqa: S310 - http by plan
        f"{base_url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    started = time.monotonic()
    try:
        with open_request(request, timeout) as response:
            answer = json.load(response)
        choice = answer["choices"][0]
        message = choice["message"]
        # vLLM has renamed it.
        reasoning = message.get("reasoning") or message.get("reasoning_content")
        return {
            **({"reasoning": str(reasoning)} if reasoning else {}),
            "answer": message["content"] or "",
            "tokens": int(answer["usage"]["completion_tokens"]),
            "finish_reason": choice["finish_reason"],
            "logprobs": [token["logprob"] for token in choice["logprobs"]["content"]],
            "words": [str(token.get("token", "")) for token in choice["logprobs"]["content"]],
            "seconds": round(time.monotonic() - started, 3),
        }
    except urllib.error.HTTPError as error:
        words = error.read(2000).decode(errors="replace")
        raise Unanswered(f"HTTP {error.code}: {words}") from error
    except (OSError, http.client.HTTPException, LookupError, ValueError, TypeError) as error:
        raise Unanswered(f"{type(error).__name__}: {error}") from error


@contextmanager
def kept_stepping(base_urls: Sequence[str], key: str, model: str) -> Iterator[None]:
    """Keep these servers busy meanwhile with one short request after the other each.

    The first engine of vLLM steps all data ranks together or none, and a rank without a request
    does not step. Whether a request is answered is not asked here: that is each rank's own proof.
    """
    done = threading.Event()

    def work(base_url: str) -> None:
        while not done.is_set():
            try:
                ask(base_url, key, model, "hi", 1, STEP_SECONDS)
            except Unanswered:
                done.wait(RETRY_SECONDS)  # it does not listen yet, or went away

    for base_url in base_urls:
        # One that hangs must not keep the answer from being told.
        threading.Thread(target=work, args=(base_url,), daemon=True).start()
    try:
        yield
    finally:
        done.set()


def judge(
    reply: dict[str, Any],
    expect: str,
    reasoning: bool = False,
    random: bool = False,
    numbers: bool = True,
) -> str:
    """Return why a reply is no proof of a working model, or an empty string when it is.

    expect is text that the answer must contain, in any case; Paris also by its name elsewhere.
    Without it an answer must still be one: not empty, with a letter or digit, and more than one
    token over and over. Of random weights, whose answer may be all that, the numbers alone are
    judged. With reasoning, thoughts must come apart from the answer, which may be missing where
    they took all tokens. Without numbers nobody asks for log probabilities, which the engine itself
    has shown.
    """
    if reply["tokens"] < 1:
        return "the answer has no tokens"
    if numbers and not reply["logprobs"]:
        return "the answer carries no log probabilities"
    # JSON has no NaN: some servers write null in its place.
    broken = [one for one in reply["logprobs"] if one is None or not math.isfinite(float(one))]
    if broken:
        return f"{len(broken)} of {reply['tokens']} tokens have a log probability of {broken[0]}"
    flat = set(reply["logprobs"])
    if len(reply["logprobs"]) >= FEWEST_REPEATED and len(flat) == 1 and 0 not in flat:
        return f"all {len(reply['logprobs'])} tokens have the same log probability {flat.pop()}"
    if reasoning:
        if not reply.get("reasoning", "").strip():
            return (
                "the answer comes without reasoning: reasoning_parser is another model's, or this "
                "model does not reason unless asked to; then set probe: {reasoning: false}"
            )
        if not reply["answer"].strip():
            if reply["finish_reason"] != "length":
                return "reasoning came, and no answer after it"
            reply = {**reply, "answer": reply["reasoning"]}
    said = reply["answer"].lower()
    if expect and not any(
        one in said for one in (expect.lower(), *ELSEWHERE.get(expect.lower(), ()))
    ):
        return f"the answer does not contain {expect!r}: {reply['answer']!r}"
    return "" if random else _no_text(reply)


def _no_text(reply: dict[str, Any]) -> str:
    """Return why an answer is no text at all, or an empty string when it is."""
    answer = reply["answer"].strip()
    if not answer:
        return f"the answer is empty after {reply['tokens']} tokens"
    if not any(letter.isalnum() for letter in answer):
        return f"the answer has no letter and no digit: {answer!r}"
    words = reply.get("words", [])
    # What ends an answer is a token of its own.
    said = words[:-1] if reply.get("finish_reason") == "stop" else words
    if len(said) >= FEWEST_REPEATED and len(set(said)) == 1:
        return f"the answer repeats one token {len(said)} times: {answer!r}"
    return ""
