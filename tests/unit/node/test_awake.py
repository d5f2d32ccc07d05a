"""The clock that counts no time in which its program stood still, driven by another clock."""

from __future__ import annotations

import pytest

from vllm_ansible.node import awake


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list whose only entry is the time of the machine."""
    now = [100.0]
    monkeypatch.setattr(awake, "_clock", lambda: now[0])
    return now


def test_what_was_missed_is_known_to_whoever_asks_first(at: list[float]) -> None:
    clock = awake.Awake()
    at[0] += 60
    # After a pause no thread is sure to run before another.
    assert clock.missed == 60 - awake.MOST_SECONDS
    assert clock.now() == awake.MOST_SECONDS
    assert clock.missed == 60 - awake.MOST_SECONDS


def test_what_passes_while_it_runs_counts(at: list[float]) -> None:
    clock = awake.Awake()
    for _ in range(8):
        at[0] += 0.25
        clock.now()
    assert (clock.now(), clock.missed) == (2.0, 0.0)


def test_it_does_not_go_back_with_a_machine_that_was_restored(at: list[float]) -> None:
    clock = awake.Awake()
    at[0] += 0.25
    assert clock.now() == 0.25
    at[0] = 3.0
    assert clock.now() == 0.25
    at[0] += 0.25
    assert (clock.now(), clock.missed) == (0.5, 0.0)
