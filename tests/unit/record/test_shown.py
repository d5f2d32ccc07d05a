"""What a run prints, also at -vvv, holds no password and nothing that a terminal obeys."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Project

PROXY = "http://ann:swordfish@proxy.example:3128"
HOSTILE = "died \x1b]0;owned\x07\x1b[2J of MINIO_SECRET_KEY=swordfish"


@pytest.mark.parametrize("flags", [(), ("-vvv",)])
def test_a_password_is_printed_and_recorded_nowhere(
    project: Project, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = project.directory / "key"
    key.write_text("0123456789abcdef")
    clients = project.directory / "clients"
    clients.write_text("# of two teams\nclient-of-ann-1\nclient-of-bob-2\n")
    credentials = project.directory / "credentials"
    credentials.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = of/aws+12\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("RUNPOD_API_KEY", "of-runpod-1")
    files = {"vllm_api_key_file": str(key), "router_client_keys_file": str(clients)}
    known = ("client-of-ann-1", "client-of-bob-2", "of/aws+12", "of-runpod-1")
    task: dict[str, Any] = {
        "name": "fetch",
        "ansible.builtin.command": {"argv": ["echo", "0123456789abcdef", "hook-line/1", *known]},
        "environment": {"HTTPS_PROXY": PROXY, "PIP_INDEX_URL": PROXY},
    }
    fail: dict[str, Any] = {"name": "serve", "ansible.builtin.fail": {"msg": HOSTILE}}
    project.play(
        {"name": "weights", "vars": files, "tasks": [task, fail]},
    )
    # A program may print it as it is, and without the address.
    sources = {"UV_INDEX_URL": "https://ann:hook-line%2F1@index.example/simple"}
    project.hosts({"a": {**files, "sources_environment": sources}})
    ran = project.run(*flags)
    assert ran.directory
    kept = "".join(one.read_text() for one in ran.directory.rglob("*") if one.is_file())
    for text in (ran.output, kept):
        for secret in ("swordfish", "0123456789abcdef", "hook-line/1", *known):
            assert secret not in text
        assert "died" in text
        assert "\x1b]0;" not in text and "\x07" not in text and "\x1b[2J" not in text
    assert "\\x1b]0;owned" in ran.output
    # It was there to be printed.
    assert ("ann:<hidden>@proxy.example" in ran.output) == bool(flags)
