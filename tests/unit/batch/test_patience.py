from __future__ import annotations

from datetime import UTC, datetime

import pytest

from vllm_ansible.batch.patience import Patience, backoff, retry_after

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("7", 7),
        ("-3", 0),
        ("Sun, 22 Nov 2026 12:01:30 GMT", 90),
        ("Sun, 22 Nov 2026 11:00:00 GMT", 0),
        ("soon", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str | None, seconds: float | None) -> None:
    assert retry_after(text, NOW) == seconds


def test_a_number_beyond_all_is_a_wait_beyond_all() -> None:
    assert retry_after("9" * 400) == float("inf")


def test_waits_grow_up_to_a_minute_and_are_never_less_than_asked() -> None:
    assert [backoff(number, None, lambda: 1.0) for number in (1, 2, 3, 9, 99)] == [1, 2, 4, 60, 60]
    assert backoff(1, None, lambda: 0.0) == 0.5
    assert backoff(1, 30.0, lambda: 1.0) == 30
    assert backoff(9, 3.0, lambda: 1.0) == 60


def test_a_run_ends_so_long_after_the_last_sign_of_life() -> None:
    now = [0.0]
    patience = Patience(10, lambda: now[0])
    patience.hold(4)
    patience.hold(2)
    assert patience.left() == 4
    now[0] = 9
    assert (patience.left(), patience.over()) == (0, False)
    patience.heard()
    now[0] = 18
    assert not patience.over()
    now[0] = 19.5
    assert patience.over()
