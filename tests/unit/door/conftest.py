"""A door before stand-in engines, where HAProxy is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .running import HAPROXY, Running


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Return a way to start engines and a door, which end with the test."""
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    with ExitStack() as stack:

        def start(**how: Any) -> Running:
            return stack.enter_context(Running(tmp_path, **how))

        yield start
