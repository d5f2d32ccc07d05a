from __future__ import annotations

import io

import pytest

from vllm_ansible.batch.sender import Tally
from vllm_ansible.batch.told import Told, closing, document, spread


def test_the_line_says_how_far_how_fast_and_when_it_ends() -> None:
    now, out, tally = [0.0], io.StringIO(), Tally()
    told = Told(out, 1200, 200, lambda: now[0])
    now[0], tally.answered, tally.completion_tokens, tally.in_flight = 10.0, 90, 1500, 8
    tally.failed, tally.again, tally.waiting = 10, 3, ""
    told.show(tally)
    assert out.getvalue() == (
        " send       290 of 1,200 answered, 8 in flight, 150.0 tokens/s, 10 failed, 3 sent again, "
        "about 1 m 30 s left\n"
    )


def test_the_rate_is_that_of_the_last_minute() -> None:
    now, tally = [0.0], Tally()
    told = Told(io.StringIO(), 10_000, 0, lambda: now[0])
    for second in range(1, 400):
        now[0] = second
        tally.completion_tokens += 100 if second > 200 else 10
        line = told.line(tally)
    assert "100.0 tokens/s" in line


def test_median_and_99th_percentile_are_of_what_was_measured() -> None:
    assert spread([]) is None
    assert spread([5.0]) == {"median": 5.0, "p99": 5.0}
    assert spread([float(one) for one in range(1, 201)]) == {"median": 100.5, "p99": 198.0}


def test_the_end_says_what_this_run_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    tally = Tally(answered=3, failed=1, again=2, prompt_tokens=30, completion_tokens=90)
    tally.ttft.extend([10, 20, 30])
    tally.total.extend([100, 200, 300])
    found = document(tally, 3.0, 10, 6, "a.jsonl", "")
    assert not found["ok"]
    assert found["itl_ms"] is None
    text = "\n".join(" ".join(line.split()) for line in closing(found))
    assert "send 9 of 10 answered, 6 of them before, 1 failed, 2 requests repeated" in text
    assert "30.0 tokens/s out, 10.0 in; TTFT 20 ms median, 30 ms p99; whole answer" in text
    assert "between tokens" not in text
    assert "did not count" not in text


def test_tokens_that_the_server_did_not_count_are_told() -> None:
    found = document(Tally(answered=3, uncounted=2), 3.0, 3, 0, "a.jsonl", "")
    assert "2 whose tokens the server did not count" in "\n".join(closing(found))


def test_the_line_stays_one_line_whatever_a_server_says() -> None:
    told = Told(io.StringIO(), 1, 0)
    assert told.line(Tally(waiting="HTTP 503: no\n\n room")).endswith("waiting: HTTP 503: no room")
