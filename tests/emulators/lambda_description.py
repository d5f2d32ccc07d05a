"""What the published description of Lambda's API says of requests and answers.

`lambda_openapi.json` is Lambda's OpenAPI file, version 1.10.0, cut down to the paths that are used
here and to what a validator reads: no texts, no examples.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

PREFIX = "/api/v1"
FILE = Path(__file__).with_name("lambda_openapi.json")


class Description:
    """The description, asked by method and path; a misfit is one sentence."""

    def request_misfits(self, method: str, path: str, body: Any) -> list[str]:
        """Return what is wrong with the body of a request."""
        wanted = _operation(method, path).get("requestBody")
        if wanted is None:
            return [] if body is None else ["no body is expected"]
        return _misfits(_validator(method, path, None), body)

    def answer_misfits(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """Return what is wrong with an answer."""
        if str(status) not in _operation(method, path)["responses"]:
            # Too many requests and failures of the server are not described for any path.
            return [] if status == 429 or status >= 500 else [f"no answer has status {status}"]
        return _misfits(_validator(method, path, status), body)


def _misfits(validator: Any, value: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@cache
def _validator(method: str, path: str, status: int | None) -> Any:
    """Return the validator of an answer, or of the request where there is no status."""
    operation = _operation(method, path)
    part = operation["requestBody"] if status is None else operation["responses"][str(status)]
    schema = part["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": _content()["components"]})


def _operation(method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = _content()["paths"][PREFIX + path][method.lower()]
    return found


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text())
    return content
