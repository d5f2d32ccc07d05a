"""Kept outputs of collective tests."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "data" / "collectives"


@pytest.fixture
def kept():
    """Return a function that reads a kept file."""

    def read(name: str) -> str:
        return (DATA / name).read_text(encoding="utf-8")

    return read
