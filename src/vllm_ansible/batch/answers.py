"""What a server answers, in one piece or in a stream, and when its tokens came."""

from __future__ import annotations

import json
import statistics
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from vllm_ansible.frozen import frozen

# Older servers say the second.
REASONING = ("reasoning", "reasoning_content")
SHOWN_CHARACTERS = 2000


class NoAnswer(Exception):
    """What came is no answer; code is what an error in it says of itself, None without one."""

    def __init__(self, words: str, code: int | None = None) -> None:
        super().__init__(words)
        self.code = code


@frozen
class Answer:
    """One whole answer. Times are milliseconds; of an answer in one piece, only total is known.

    Inter-token latency is taken between the pieces that arrive, which may hold several tokens.
    """

    text: str
    reasoning: str | None
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    total_ms: float
    ttft_ms: float | None = None
    itl_ms_median: float | None = None
    itl_ms_max: float | None = None


class Stream:
    """A stream of server-sent events on its way; `feed` takes what arrives, `answer` ends it.

    tell: called with each piece of the answer, and of the reasoning before it.
    """

    def __init__(self, began: float, tell: Callable[[str, str], None] = lambda *_: None) -> None:
        self._began, self._tell = began, tell
        self._rest = b""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._gaps = array("d")
        self._first: float | None = None
        self._last = began
        self._finish = ""
        self._usage: Mapping[str, Any] = {}
        self._done = False

    def feed(self, piece: bytes, now: float) -> None:
        """Take bytes that arrived now, cut anywhere. Raises NoAnswer for an error among them."""
        # Cut at line ends before it is decoded: a character may lie across two pieces.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            line = line.strip()
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def answer(self, now: float) -> Answer:
        """Return the answer, or raise NoAnswer where the stream broke off."""
        if not (self._done and self._finish):
            raise NoAnswer("the stream broke off before its end")
        return Answer(
            text="".join(self._text),
            reasoning="".join(self._reasoning) or None,
            finish_reason=self._finish,
            prompt_tokens=_count(self._usage, "prompt_tokens"),
            completion_tokens=_count(self._usage, "completion_tokens"),
            total_ms=_ms(now - self._began),
            ttft_ms=None if self._first is None else _ms(self._first - self._began),
            itl_ms_median=_ms(statistics.median(self._gaps)) if self._gaps else None,
            itl_ms_max=_ms(max(self._gaps)) if self._gaps else None,
        )

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        event = _object(data)
        _no_error(event)
        try:
            self._usage = dict(event.get("usage") or self._usage)
            for choice in list(event.get("choices") or ())[:1]:
                said = choice.get("delta") or {}
                text, reasoning = said.get("content") or "", _reasoning(said) or ""
                if not (isinstance(text, str) and isinstance(reasoning, str)):
                    raise TypeError("a piece of the answer is not text")
                self._text.append(text)
                self._reasoning.append(reasoning)
                self._finish = choice.get("finish_reason") or self._finish
                if text or reasoning:
                    self._token(now)
                    self._tell(text, reasoning)
        except (AttributeError, TypeError, ValueError) as error:
            raise NoAnswer(f"not part of a chat completion: {_shown(data)}") from error

    def _token(self, now: float) -> None:
        if self._first is None:
            self._first = now
        else:
            self._gaps.append(now - self._last)
        self._last = now


def whole(body: bytes, began: float, now: float) -> Answer:
    """Return the answer that came in one piece, or raise NoAnswer."""
    found = _object(body)
    _no_error(found)
    try:
        choice = found["choices"][0]
        said = choice["message"]
        usage = found.get("usage") or {}
        return Answer(
            text=said.get("content") or "",
            reasoning=_reasoning(said),
            finish_reason=choice.get("finish_reason") or "",
            prompt_tokens=_count(usage, "prompt_tokens"),
            completion_tokens=_count(usage, "completion_tokens"),
            total_ms=_ms(now - began),
        )
    except (AttributeError, LookupError, TypeError) as error:
        raise NoAnswer(f"not a chat completion: {_shown(body)}") from error


def words_of(body: bytes) -> str:
    """Return what a server says is wrong, in its own words."""
    try:
        found = json.loads(body)
        error = found.get("error", found)
        words = error if isinstance(error, str) else error.get("message") or error
        return str(words)[:SHOWN_CHARACTERS]
    except (AttributeError, ValueError):
        return _shown(body)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise NoAnswer(f"not JSON: {_shown(data)}") from error
    if not isinstance(found, dict):
        raise NoAnswer(f"not an object: {_shown(data)}")
    return found


def _no_error(found: Mapping[str, Any]) -> None:
    """Refuse an error that came with status 200, as it does in the middle of a stream."""
    if error := found.get("error"):
        code = error.get("code") if isinstance(error, dict) else None
        words = words_of(json.dumps(found).encode())
        raise NoAnswer(words, code if isinstance(code, int) else None)


def _reasoning(said: Mapping[str, Any]) -> str | None:
    return next((said[name] for name in REASONING if said.get(name)), None)


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    found = usage.get(name)
    return found if isinstance(found, int) else None


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def _shown(data: bytes) -> str:
    return " ".join(data[:SHOWN_CHARACTERS].decode(errors="replace").split())
