"""What a run prints, also at -vvv, holds no password and nothing that a terminal obeys."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Project

PROXY = "http://ann:swordfish@proxy.example:3128"
HOSTILE = "died \x1b]0;owned\x07\x1b[2J of MINIO_SECRET_KEY=swordfish"


@pytest.mark.parametrize("flags", [(), ("-vvv",)])
def test_a_password_is_printed_and_recorded_nowhere(
    project: Project, flags: tuple[str, ...]
) -> None:
    key = project.directory / "key"
    key.write_text("0123456789abcdef")
    task: dict[str, Any] = {
        "name": "fetch",
        "ansible.builtin.command": {"argv": ["echo", "0123456789abcdef", "hook-line/1"]},
        "environment": {"HTTPS_PROXY": PROXY, "PIP_INDEX_URL": PROXY},
    }
    fail: dict[str, Any] = {"name": "serve", "ansible.builtin.fail": {"msg": HOSTILE}}
    project.play(
        {"name": "weights", "vars": {"vllm_api_key_file": str(key)}, "tasks": [task, fail]},
    )
    # A program may print it as it is, and without the address.
    sources = {"UV_INDEX_URL": "https://ann:hook-line%2F1@index.example/simple"}
    project.hosts({"a": {"vllm_api_key_file": str(key), "sources_environment": sources}})
    ran = project.run(*flags)
    assert ran.directory
    kept = "".join(one.read_text() for one in ran.directory.rglob("*") if one.is_file())
    for text in (ran.output, kept):
        for secret in ("swordfish", "0123456789abcdef", "hook-line/1"):
            assert secret not in text
        assert "died" in text
        assert "\x1b]0;" not in text and "\x07" not in text and "\x1b[2J" not in text
    assert "\\x1b]0;owned" in ran.output
    # It was there to be printed.
    assert ("ann:<hidden>@proxy.example" in ran.output) == bool(flags)
