"""What is said of a failure that no signature was made for: nothing, or no more than a usual cause.

Each of the failures that test_others.py knows is judged without the signature that knows it,
and without all that were made from its thread or its lines. So what is right is said by
others, or by the structure of the line; a wrong one as if it were certain is what must not be.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from vllm_ansible.record.diagnosis import match
from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.match import Signature
from vllm_ansible.record.diagnosis.verdict import diagnose

from .test_others import FAILURES, told

MOST_WRONG = 0.01


@pytest.fixture
def known() -> Iterator[tuple[Signature, ...]]:
    """Return all signatures, and forget afterwards what was read with fewer."""
    yield match.signatures()
    match._matches.cache_clear()


def made_from(signature: Signature, log: dict[str, Any], text: str) -> bool:
    thread = str(log["thread"]).lower()
    refs = [one.lower() for one in signature.refs]
    if any(thread == one or thread.endswith(f"/{one}") for one in refs):
        return True
    return signature.sample.strip().splitlines()[-1].strip() in text


@pytest.mark.soak
def test_what_nobody_knows_gets_hardly_ever_a_wrong_cause_as_if_it_were_certain(
    known: tuple[Signature, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Counter[str]()
    wrong = []
    for log in FAILURES:
        monkeypatch.setattr(match, "signatures", lambda: known)
        match._matches.cache_clear()
        right = told(log).get("signature")
        text = "\n".join((log.get("files") or {"": log["excerpt"]}).values())
        left = tuple(one for one in known if one.id != right and not made_from(one, log, text))
        monkeypatch.setattr(match, "signatures", lambda left=left: left)
        match._matches.cache_clear()
        answer = told(log)
        said = " / ".join(answer.get(name, "") for name in ("cause", "otherwise"))
        if "cause" not in answer:
            answers["none"] += 1
        elif any(re.search(pattern, said, re.IGNORECASE) for pattern in log["accept"]):
            answers["right"] += 1
        elif said.startswith(USUAL):
            answers["wrong, as the usual cause"] += 1
        elif re.search("^Not known from this line|that the line names", said):
            answers["no cause, the line speaks"] += 1
        else:
            answers["wrong"] += 1
            wrong.append((log["id"], answer.get("signature")))
    print(f"\nof {len(FAILURES)}: {dict(answers)}; wrong: {wrong}")
    assert answers["wrong"] <= MOST_WRONG * len(FAILURES), wrong


def test_a_line_with_several_causes_says_so_and_one_that_names_its_cause_does_not() -> None:
    (log,) = (one for one in FAILURES if one["id"] == "trust-remote-code")
    full = diagnose("x", {"a": "write error: No space left on device"}, {})
    assert full["cause"].startswith(USUAL)
    assert not told(log)["cause"].startswith(USUAL)
