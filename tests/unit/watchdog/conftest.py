"""An engine's stand-ins and the watchdog's own program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .running import Running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as one:
        one.serves()
        yield one
