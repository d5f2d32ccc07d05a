"""With the threads that the role chooses, every one of many short requests ends (`make soak`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pressing import press
from .running import HAPROXY

SECONDS = 75


@pytest.mark.soak
@pytest.mark.parametrize("stream", [False, True])
def test_every_request_of_a_pressed_door_ends(tmp_path: Path, stream: bool) -> None:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    found = press(tmp_path, SECONDS, stream=stream)
    print(found)
    assert set(found["ends"]) == {"200"}, found
    assert not found["faults"], found
