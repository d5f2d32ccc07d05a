"""The points of a sweep as a table: for people, for a spreadsheet, and as one line."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from .points import LENGTHS

Points = Sequence[Mapping[str, Any]]

COLUMNS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "output_tokens_per_second",
    "predicted_low",
    "predicted",
    "predicted_high",
    "predicted_input_tokens",
    "predicted_output_tokens",
    "ttft_ms_median",
    "ttft_ms_p99",
    "inter_token_latency_ms_median",
    "requests",
    "input_tokens",
    "output_tokens",
    "duration_seconds",
    "measured_at",
    "failure",
)
SHOWN_WORDS = 160


def rows(points: Points) -> list[dict[str, Any]]:
    """Return a row for each point; what is not known is None."""
    found = []
    for point in points:
        low, middle, high = point.get("predicted") or (None, None, None)
        figures = point.get("figures") or {}
        failure = point.get("failure") or {}
        lengths = point.get("predicted_for") or {}
        found.append(
            {
                **{name: figures.get(name) for name in COLUMNS},
                "max_num_seqs": point["max_num_seqs"],
                "max_num_batched_tokens": point["max_num_batched_tokens"],
                "predicted_low": low,
                "predicted": middle,
                "predicted_high": high,
                **{f"predicted_{name}": lengths.get(name) for name in LENGTHS},
                "measured_at": figures.get("measured_at") or point.get("at"),
                "failure": failure.get("cause") or failure.get("msg"),
            }
        )
    return found


def as_csv(points: Points) -> str:
    """Return the table with a header, empty where nothing is known."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(points))
    return text.getvalue()


def as_markdown(engine: str, points: Points, figure: str) -> str:
    """Return the table with its figure, as it can go into a document."""
    lines = [
        f"# Throughput of {engine}",
        "",
        f"![tokens/s over max_num_seqs]({figure})",
        "",
        "| max_num_seqs | max_num_batched_tokens | tokens/s | predicted | TTFT, ms, median (p99) "
        "| between tokens, ms | requests | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in rows(points)]
    if words := predicted_for(points):
        lines += ["", f"Predicted for {words}."]
    return "\n".join(lines) + "\n"


def predicted_for(points: Points) -> str:
    """Return the lengths that the predictions are for; empty where nobody knows them."""
    each = [point["predicted_for"] for point in points if point.get("predicted_for")]
    pairs = sorted({tuple(one[name] for name in LENGTHS) for one in each})
    return ", ".join(f"{told:,} tokens in and {said:,} out" for told, said in pairs)


def summary(engine: str, points: Points) -> str:
    """Return one line about a sweep."""
    good = [point for point in points if point["ok"]]
    if not good:
        return f"{engine}: none of {len(points)} points could be measured"
    best = max(good, key=lambda point: float(point["figures"]["output_tokens_per_second"]))
    failed = [point for point in points if not point["ok"]]
    told = f"{engine}: {len(good)} points, most with {_name(best)}: " + (
        f"{best['figures']['output_tokens_per_second']} tokens/s"
    )
    return told + (f"; failed: {', '.join(map(_name, failed))}" if failed else "")


def _name(point: Mapping[str, Any]) -> str:
    return f"{point['max_num_seqs']} x {point['max_num_batched_tokens']}"


def _line(row: Mapping[str, Any]) -> str:
    place = f"| {row['max_num_seqs']} | {row['max_num_batched_tokens']} "
    if row["failure"]:
        words = " ".join(str(row["failure"]).split()).replace("|", "\\|")
        told = f"| failed: {words[:SHOWN_WORDS]} | {_predicted(row)} | | | "
        return f"{place}{told}| {row['measured_at']} |"
    return (
        f"{place}| {row['output_tokens_per_second']} | {_predicted(row)} "
        f"| {row['ttft_ms_median']} ({row['ttft_ms_p99']}) "
        f"| {row['inter_token_latency_ms_median']} | {row['requests']} | {row['measured_at']} |"
    )


def _predicted(row: Mapping[str, Any]) -> str:
    if row["predicted"] is None:
        return "nothing"
    return f"{row['predicted']:,.0f} ({row['predicted_low']:,.0f} to {row['predicted_high']:,.0f})"
