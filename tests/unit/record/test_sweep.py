"""The report of a sweep shows every point, and the figure."""

from __future__ import annotations

from pathlib import Path

from .test_report import evidence, good, page, words

FIGURES = {"output_tokens_per_second": 75.5, "ttft_ms_median": 12.0}
GOOD = {"max_num_seqs": 8, "max_num_batched_tokens": 256, "ok": True, "figures": FIGURES}
BAD = {**GOOD, "max_num_seqs": 16, "ok": False, "failure": {"msg": "no <room>", "host": "a"}}


def test_points_are_rows_and_a_figure(tmp_path: Path) -> None:
    html = page(tmp_path, [*good(), evidence(3, "sweep", engine="chat", points=[GOOD, BAD])])
    seen = words(html)
    assert "8 256 75.5 tokens/s nothing 12 ms" in seen
    assert "chat: throughput over max_num_seqs" in html
    assert "<title>16 x 256 failed</title>" in html
    assert "no &lt;room&gt;" in html


def test_a_run_that_swept_nothing_has_no_such_part(tmp_path: Path) -> None:
    assert "Sweep" not in words(page(tmp_path, good()))
