"""A door before stand-in engines, where HAProxy is here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from .running import HAPROXY, Running, wait_until

DAY, MINUTE = 86400, 60


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return one door before one engine, for tests that look at what they add to its counts."""
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    with Running(tmp_path_factory.mktemp("door")) as one:
        yield one


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Return a way to start engines and a door, which end with the test."""
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    # What is counted by the day (UTC) is looked at within one.
    wait_until(lambda: time.time() % DAY < DAY - MINUTE, 2 * MINUTE)
    with ExitStack() as stack:

        def start(**how: Any) -> Running:
            return stack.enter_context(Running(tmp_path, **how))

        yield start
