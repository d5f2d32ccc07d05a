"""The table and the figure, from points that were measured, predicted and failed."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from typing import Any

from vllm_ansible.sweep.figure import figure
from vllm_ansible.sweep.table import as_csv, as_markdown, rows, summary


def point(sequences: int, tokens: int, rate: float, predicted: Any = None) -> dict[str, Any]:
    return {
        "max_num_seqs": sequences,
        "max_num_batched_tokens": tokens,
        "ok": True,
        "figures": {"output_tokens_per_second": rate, "ttft_ms_median": 5.5, "measured_at": "then"},
        "predicted": predicted,
    }


def broken(sequences: int, tokens: int) -> dict[str, Any]:
    failure = {"msg": "no | answer", "host": "a"}
    place = {"max_num_seqs": sequences, "max_num_batched_tokens": tokens}
    return {**place, "ok": False, "failure": failure, "at": "later"}


GRID = [
    point(4, 64, 30.0),
    point(4, 256, 41.5),
    point(8, 64, 50.0, [40, 55, 70]),
    point(8, 256, 75.0, [60, 80, 100]),
    broken(16, 8),
]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(points: list[dict[str, Any]]) -> ElementTree.Element:
    return ElementTree.fromstring(figure("a <b> & c", points))  # noqa: S314 - our own


def texts(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


def test_every_point_is_a_row_also_one_that_failed() -> None:
    read = list(csv.DictReader(io.StringIO(as_csv(GRID))))
    assert [row["output_tokens_per_second"] for row in read] == ["30.0", "41.5", "50.0", "75.0", ""]
    assert (read[3]["predicted"], read[0]["predicted"]) == ("80", "")
    assert (read[4]["failure"], read[4]["measured_at"]) == ("no | answer", "later")
    assert rows(GRID)[0]["failure"] is None


def test_the_table_for_people_keeps_its_columns() -> None:
    lines = as_markdown("chat", GRID, "x.svg").splitlines()
    table = [line.replace("\\|", "") for line in lines if line.startswith("|")]
    assert {line.count("|") for line in table} == {table[0].count("|")}
    assert "| 8 | 256 | 75.0 | 80 (60 to 100) | 5.5" in table[5]
    assert "failed: no" in table[6]
    assert "![tokens/s over max_num_seqs](x.svg)" in lines


def test_one_line_names_the_best_and_what_failed() -> None:
    assert summary("chat", GRID) == (
        "chat: 4 points, most with 8 x 256: 75.0 tokens/s; failed: 16 x 8"
    )
    assert summary("chat", [broken(1, 1)]) == "chat: none of 1 points could be measured"


def test_the_figure_has_a_line_for_each_number_of_batched_tokens() -> None:
    root = drawn(GRID)
    assert "a <b> & c" in texts(root)
    assert {"64 batched tokens", "256 batched tokens", "failed"} <= set(texts(root))
    thick = [one for one in root.iter(f"{SVG}polyline") if one.get("stroke-width") == "2.5"]
    assert len(thick) == 4  # two lines, two of the legend
    told = [one.text for one in root.iter(f"{SVG}title")]
    assert "8 x 256: 75 tokens/s" in told
    assert "16 x 8 failed" in told


def test_predictions_are_dashed_and_only_named_where_there_are_any() -> None:
    both = [point(4, 64, 30.0, [1, 2, 3]), point(8, 64, 50.0, [4, 5, 6])]
    assert [one for one in drawn(both).iter() if one.get("stroke-dasharray")]
    assert "predicted" in texts(drawn(both))
    assert "predicted" not in texts(drawn(GRID[:2]))


def test_a_prediction_says_which_lengths_it_is_for() -> None:
    lengths = {"input_tokens": 1024, "output_tokens": 512}
    points = [{**one, "predicted_for": lengths} if one.get("predicted") else one for one in GRID]
    assert "1,024 tokens in and 512 out" in texts(drawn(points))
    assert "Predicted for 1,024 tokens in and 512 out." in as_markdown("chat", points, "x.svg")
    assert rows(points)[3]["predicted_output_tokens"] == 512
    assert "Predicted for" not in as_markdown("chat", GRID, "x.svg")


def test_points_that_each_have_their_own_tokens_are_one_line() -> None:
    root = drawn([point(8, 8192, 76.0), point(32, 16384, 300.0), point(48, 24576, 446.0)])
    assert "each its own batched tokens" in texts(root)


def test_all_that_is_drawn_lies_on_the_picture() -> None:
    for points in (GRID, [point(1, 1, 0.04)], [broken(4, 4)], [point(256, 8, 123456.0)]):
        root = drawn(points)
        _, _, width, height = map(float, (root.get("viewBox") or "").split())
        for one in root.iter(f"{SVG}circle"):
            assert 0 < float(one.get("cx") or -1) < width
            assert 0 < float(one.get("cy") or -1) < height
        for line in root.iter(f"{SVG}polyline"):
            for place in (line.get("points") or "").split():
                x, y = map(float, place.split(","))
                assert 0 <= x <= width
                assert 0 <= y <= height
