"""The prompts of a file: what each one asks, under which tag, and on which line it stands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem, close_match

from . import documents

# The second names are those of files that are around already.
PROMPTS = ("prompts", "user_prompts")
SYSTEM = ("system", "system_prompt")
TAG = ("tag", "question_tag")
TEXT = ("prompt", "content")
MESSAGES = ("messages",)
PARAMETERS = ("parameters",)
OF_FILE = (*PROMPTS, *SYSTEM, *PARAMETERS)
OF_PROMPT = (*TAG, *TEXT, *MESSAGES, *SYSTEM, *PARAMETERS)
KEPT = "text and reasoning: nothing else of an answer is kept"
OURS = {
    "model": "the served model, or --model",
    "messages": "the prompt",
    "stream": "--no-stream",
    "stream_options": "--no-stream",
    "n": "a prompt for each answer",
    "tools": KEPT,
    "functions": KEPT,
    "logprobs": KEPT,
    "prompt_logprobs": KEPT,
}
BY_LINES = (".jsonl", ".ndjson")


@frozen
class Prompt:
    """One prompt: its messages in the API's form, and what else goes into the request."""

    tag: str
    messages: list[Mapping[str, Any]]
    parameters: Mapping[str, Any]
    line: int

    def digest(self, model: str) -> str:
        """Return by what a kept answer is known to be one to this very prompt."""
        asked = json.dumps([model, self.messages, self.parameters], sort_keys=True)
        return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class PromptFile:
    """The prompts of a JSON or JSON lines file, read anew each time they are iterated.

    system and parameters hold for prompts that have none of their own, before those of the file.
    What is wrong with the file is a PlanError with the line.
    """

    def __init__(
        self, path: Path, system: str | None = None, parameters: Mapping[str, Any] | None = None
    ) -> None:
        self.path = path
        self._by_lines = path.suffix.lower() in BY_LINES
        self._text = "" if self._by_lines else self._whole()
        common = {} if self._by_lines else self._guarded(self._header)
        self._system = system if system is not None else common.get("system")
        self._parameters = {**common.get("parameters", {}), **(parameters or {})}
        check_parameters(self._parameters, str(path))

    def __iter__(self) -> Iterator[Prompt]:
        """Yield the prompts in the order of the file, refusing the first that is none."""
        try:
            for line, value in self._values():
                yield self._prompt(value, line)
        except documents.Malformed as error:
            raise self._malformed(error) from error

    def digests(self, model: str) -> dict[str, str]:
        """Return the digest of every prompt by its tag, in order; a tag stands once."""
        found: dict[str, str] = {}
        lines: dict[str, int] = {}
        for prompt in self:
            if prompt.tag in found:
                raise _wrong(
                    f"two prompts have the tag {prompt.tag!r}",
                    "a tag of its own for each prompt",
                    f"{prompt.tag!r} on line {lines[prompt.tag]} and again on line {prompt.line}",
                    self._place(prompt.line),
                )
            found[prompt.tag] = prompt.digest(model)
            lines[prompt.tag] = prompt.line
        if not found:
            raise _wrong("there is no prompt", "at least one", "none", str(self.path))
        return found

    def _whole(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            wrong = documents.Malformed(f"byte {error.start + 1} is not UTF-8", line)
            raise self._malformed(wrong) from error
        except OSError as error:
            raise PlanError(Problem(f"{self.path} cannot be read: {error.strerror}")) from error

    def _values(self) -> Iterator[tuple[int, Any]]:
        if self._by_lines:
            try:
                yield from documents.lines(self.path)
            except OSError as error:
                raise PlanError(Problem(f"{self.path} cannot be read: {error.strerror}")) from error
            return
        walk = documents.Walk(self._text)
        if walk.peek() == "[":
            yield from walk.elements()
            walk.end()
            return
        for _, name in walk.names():
            if name in PROMPTS:
                yield from walk.elements()
            else:
                walk.value()

    def _header(self) -> dict[str, Any]:
        """Return what an object says of all its prompts; a bare list says nothing."""
        walk = documents.Walk(self._text)
        if walk.peek() == "[":
            return {}
        found: dict[str, Any] = {}
        for line, name in walk.names():
            if name in PROMPTS:
                found["prompts"] = True
                for _ in walk.elements():
                    pass
                continue
            if name not in OF_FILE:
                raise self._unknown(name, OF_FILE, line)
            line, value = walk.value()
            if name in SYSTEM:
                found["system"] = self._typed(value, str, name, line)
            else:
                found["parameters"] = self._typed(value, dict, name, line)
        walk.end()
        if "prompts" not in found:
            raise _wrong(
                "the file has no list of prompts",
                "a list, or an object with `prompts`",
                f"an object with {', '.join(found) or 'nothing'}",
                str(self.path),
            )
        return found

    def _guarded(self, read: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = read()
        except documents.Malformed as error:
            raise self._malformed(error) from error
        return found

    def _prompt(self, value: Any, line: int) -> Prompt:
        """Return one prompt, or refuse it."""
        where = self._place(line)
        if not isinstance(value, dict):
            raise _wrong("a prompt is an object", "{tag: ..., prompt: ...}", _kind(value), where)
        for name in value:
            if name not in OF_PROMPT:
                raise self._unknown(name, OF_PROMPT, line)
        tag = self._one_of(value, TAG, line)
        self._typed(tag, str, "tag", line)
        if not tag.strip():
            raise _wrong("a tag is empty", "a tag of its own for each prompt", repr(tag), where)
        messages = self._messages(value, line)
        system = next((value[name] for name in SYSTEM if name in value), self._system)
        if system is not None and messages[0].get("role") != "system":
            messages = [
                {"role": "system", "content": self._typed(system, str, "system", line)},
                *messages,
            ]
        own = self._typed(value.get("parameters", {}), dict, "parameters", line)
        check_parameters(own, where)
        return Prompt(tag, messages, {**self._parameters, **own}, line)

    def _messages(self, value: Mapping[str, Any], line: int) -> list[Mapping[str, Any]]:
        """Return the messages of a prompt, without a system prompt from elsewhere."""
        given = self._one_of(value, (*TEXT, *MESSAGES), line)
        if "messages" not in value:
            return [{"role": "user", "content": self._typed(given, str, "prompt", line)}]
        messages: list[Any] = self._typed(given, list, "messages", line)
        for message in messages or [None]:
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                raise _wrong(
                    "a message is an object with a role",
                    "[{role: user, content: ...}]",
                    json.dumps(message)[:80],
                    self._place(line),
                )
        return messages

    def _one_of(self, value: Mapping[str, Any], names: tuple[str, ...], line: int) -> Any:
        given = [name for name in names if name in value]
        if len(given) == 1:
            return value[given[0]]
        raise _wrong(
            f"a prompt needs {' or '.join(names)}, and one of them only",
            f"one of {', '.join(names)}",
            " and ".join(given) or f"none; there is {', '.join(value) or 'nothing'}",
            self._place(line),
        )

    def _typed(self, value: Any, kind: type, name: str, line: int) -> Any:
        if isinstance(value, kind):
            return value
        names: dict[type, str] = {str: "a text", dict: "an object", list: "a list"}
        raise _wrong(f"{name} is not {names[kind]}", names[kind], _kind(value), self._place(line))

    def _unknown(self, name: str, known: tuple[str, ...], line: int) -> PlanError:
        hint = close_match(name, known)
        return _wrong(
            f"unknown field {name!r}{f': {hint}' if hint else ''}",
            ", ".join(known),
            name,
            self._place(line),
            "name the file .jsonl where each line is a prompt" if name in OF_PROMPT else "",
        )

    def _place(self, line: int) -> str:
        return f"{self.path}, line {line}"

    def _malformed(self, error: documents.Malformed) -> PlanError:
        what = "JSON, one prompt a line" if self._by_lines else "JSON"
        return _wrong("the file cannot be parsed", what, str(error), self._place(error.line))


def check_parameters(parameters: Mapping[str, Any], where: str) -> None:
    """Refuse what is not a parameter's to say."""
    for name, instead in OURS.items():
        if name in parameters:
            raise _wrong(f"{name} is not a parameter here", instead, f"{name} in parameters", where)


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    names |= {dict: "an object", list: "a list", type(None): "null"}
    return f"{names[type(value)]}: {json.dumps(value)[:60]}"


def _wrong(message: str, expected: str, found: str, where: str, fix: str = "") -> PlanError:
    return PlanError(Problem(message, expected=expected, found=found, where=where, fix=fix))
