"""What the published description of RunPod's API says of requests and answers.

`runpod_openapi.json` is RunPod's OpenAPI file, version 2.0.0, cut down to the paths that are used
here and to what a validator reads: no texts, no examples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

PREFIX = "/v2"
FILE = Path(__file__).with_name("runpod_openapi.json")


class Description:
    """The description, asked by method and path; a misfit is one sentence."""

    def request_misfits(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> list[str]:
        """Return what is wrong with a request."""
        wrong = _query_misfits(method, path, query)
        if _operation(method, path).get("requestBody") is None:
            return wrong if body is None else [*wrong, "no body is expected"]
        return wrong + _misfits(_validator(method, path, None), body)

    def answer_misfits(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """Return what is wrong with an answer."""
        responses = _operation(method, path)["responses"]
        if str(status) not in responses and "default" not in responses:
            return [f"no answer has status {status}"]
        part = responses.get(str(status), responses.get("default"))
        if "content" not in part:
            return [] if body is None else ["no body is expected"]
        return _misfits(_validator(method, path, status), body)


def content_type(method: str, path: str, status: int) -> str:
    """Return the type of an answer's body; empty where it has none."""
    responses = _operation(method, path)["responses"]
    part = responses.get(str(status), responses["default"])
    return next(iter(part.get("content", {})), "")


def _query_misfits(method: str, path: str, query: Mapping[str, str]) -> list[str]:
    known = {one["name"]: one for one in _operation(method, path).get("parameters", ())}
    wrong = [f"no parameter is called {name}" for name in query if name not in known]
    for name, text in query.items():
        if name in known:
            schema = known[name]["schema"]
            value = _read(schema, text)
            validator = Draft202012Validator({**schema, "components": _content()["components"]})
            wrong += [f"{name}: {error.message}" for error in validator.iter_errors(value)]
    return wrong


def _read(schema: Mapping[str, Any], text: str) -> Any:
    """Return a query parameter as its schema has it."""
    kind = schema.get("type")
    if kind == "array":
        return text.split(",")
    if kind == "boolean":
        return {"true": True, "false": False}.get(text, text)
    return int(text) if kind == "integer" and text.isdecimal() else text


def _misfits(validator: Any, value: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@cache
def _validator(method: str, path: str, status: int | None) -> Any:
    """Return the validator of an answer, or of the request where there is no status."""
    operation = _operation(method, path)
    responses = operation["responses"]
    part = (
        operation["requestBody"]
        if status is None
        else responses.get(str(status), responses.get("default"))
    )
    (content,) = part["content"].values()
    return Draft202012Validator({**content["schema"], "components": _content()["components"]})


def _operation(method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = _content()["paths"][PREFIX + path][method.lower()]
    return found


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text())
    return content
