"""What a signature on a request proves, and what it does not."""

from __future__ import annotations

import pytest

from vllm_ansible.node.weights.store import signing

KEY = b"0123456789abcdef"
PATH = "/m/config.json"


def test_without_the_key_nothing_is_given() -> None:
    assert signing.refusal(KEY, PATH, signing.header(b"another", PATH)) == "another key"
    assert signing.refusal(KEY, "/m/other", signing.header(KEY, PATH)) == "another key"
    assert signing.refusal(KEY, PATH, "") == "no signature"


def test_a_request_that_was_read_can_be_sent_again_for_five_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_800_000_000.0
    monkeypatch.setattr(signing.time, "time", lambda: now)
    read = signing.header(KEY, PATH)
    monkeypatch.setattr(signing.time, "time", lambda: now + 299)
    assert [signing.refusal(KEY, PATH, read) for _ in range(2)] == ["", ""]
    monkeypatch.setattr(signing.time, "time", lambda: now + 302)
    assert signing.refusal(KEY, PATH, read).startswith("another time")
