"""An answer that cannot be counted still reaches its client, whole and in time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.emulators.metered_engine import events

from .running import Running, with_line

FAULTS = {
    "at the head": "usage.lua:function Usage:begin",
    "at each figure": "counts.lua:function counts.charge",
    "at the end": "counts.lua:function counts.flush",
}


def with_fault(place: str, directory: Path) -> Path:
    """Return a copy of the door's program in which one function fails in an answer."""
    # counts.flush is called for a request as well, whose tokens are still 0.
    fault = 'error("broken")'
    if place.endswith("flush"):
        fault = f"if used.read > 0 then pending = {{}} {fault} end"
    return with_line(place, fault, directory)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_answer_that_cannot_be_counted_goes_on(
    door: Callable[..., Running], tmp_path: Path, fault: str
) -> None:
    running = door(door_program=with_fault(FAULTS[fault], tmp_path))
    status, text, _ = running.chat(max_tokens=3)
    assert (status, json.loads(text)["usage"]["completion_tokens"]) == (200, 3)
    body = {"stream": True, "max_tokens": 3, "pieces": 40}
    status, text, _ = running.chat(**body)
    sent = [json.loads(one) for one in events(body)[:-1]]
    got = [json.loads(one[6:]) for one in text.split("\n\n") if one.startswith("data: {")]
    assert (status, text[-14:]) == (200, "data: [DONE]\n\n")
    assert [one["choices"] for one in got if one["choices"]] == [one["choices"] for one in sent]
    said = running.log.read_text()
    assert "the door does not count an answer: " in said and "broken" in said
    assert running.chat()[0] == 200
