"""Repetition: what holds once holds many times. `make soak` runs it, docs/soak.md has figures."""

from __future__ import annotations

import statistics
import time

import pytest

from .conftest import Site
from .processes import identities

pytestmark = [pytest.mark.engine, pytest.mark.soak]
REPEATS = 10


def test_ten_converged_runs_change_nothing(served: Site) -> None:
    before, seconds = identities(served.cluster_dir), []
    for _ in range(REPEATS):
        started = time.monotonic()
        ran = served.run()
        seconds.append(time.monotonic() - started)
        assert ran.status == 0, ran.output
        assert ran.changed == []
    assert identities(served.cluster_dir) == before
    print(f"{REPEATS} runs: median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s")
