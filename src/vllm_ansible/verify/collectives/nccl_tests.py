"""Read nccl-tests: its text of every build since 2019, and its JSON (-J).

The hypercube program is no operation of this project: it counts other bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from vllm_ansible.problem import Problem
from vllm_ansible.verify.collectives import text_output
from vllm_ansible.verify.collectives.report import (
    Report,
    Row,
    Timing,
    UnreadableOutput,
    nccl_version,
)

FAMILY = "nccl-tests"
MICRO = 1e-6
INFINITE = re.compile(r"(?<=:)(-?)inf\b")


def parse(text: str, program: str | None = None) -> Report:
    """Return what a run printed, or wrote as JSON, told apart by the first letter.

    program: `all_reduce_perf`, for builds that do not print it. Raises UnreadableOutput.
    """
    if text.lstrip().startswith("{"):
        return parse_json(text)
    return text_output.parse(text, program, FAMILY)


def parse_json(text: str) -> Report:
    """Return what `-J FILE` wrote; UnreadableOutput for anything else.

    The schema is that of src/util.cu at versions 1 and 2 (writeBenchmarkLineBody and its
    neighbours): times in microseconds, booleans and not-a-number as words, a bare `inf`.
    """
    try:
        document = json.loads(INFINITE.sub(r"\1Infinity", text))
        rows = tuple(_row(entry) for entry in document["results"])
    except json.JSONDecodeError as error:
        raise UnreadableOutput(
            Problem(
                "the JSON of nccl-tests ends in the middle or is damaged",
                expected="one whole document: it is closed when the test ends",
                found=f"{error.msg} at letter {error.pos} of {len(text)}",
                fix="read the text that the same run printed; the test was stopped or died",
            )
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableOutput(
            Problem(
                "the JSON is not that of nccl-tests",
                expected="results: size, count, type, out_of_place, in_place",
                found=f"{type(error).__name__}: {error}",
                fix="give the file that -J wrote, by nccl-tests 2.16 or later",
            )
        ) from error
    bounds, average = document.get("out_of_bounds"), document.get("average_bus_bandwidth")
    complete = bounds is not None and average is not None
    said = [f"error: {line}" for line in document.get("errors", ()) if line]
    if not complete:
        said.append("the output ends before its summary: the test was stopped or died")
    wrong = None
    if bounds is not None:
        wrong = int(bounds["count"]) or int(bounds["okay"] == "false")
    arguments = document.get("args") or [None]
    return Report(
        program=arguments[0].rsplit("/", 1)[-1] if arguments[0] else None,
        version=nccl_version(document.get("nccl_version")),
        ranks=_ranks(document),
        rows=rows,
        out_of_bounds=wrong,
        average_busbw=float(average["bandwidth"]) if average else None,
        complete=complete,
        said=tuple(said),
    )


def _row(entry: dict[str, Any]) -> Row:
    redop = entry.get("redop")
    return Row(
        bytes=int(entry["size"]),
        count=int(entry["count"]),
        type=entry["type"],
        redop=None if redop in (None, "none") else redop,
        root=int(entry["root"]) if entry.get("root") is not None else None,
        out_of_place=_timing(entry.get("out_of_place")),
        in_place=_timing(entry.get("in_place")),
    )


def _timing(entry: dict[str, Any] | None) -> Timing | None:
    if entry is None:
        return None
    time = entry["time"] if "time" in entry else entry["cpu_time"]
    wrong = entry.get("nwrong")
    return Timing(
        float(time) * MICRO,
        float(entry["alg_bw"]),
        float(entry["bus_bw"]),
        None if wrong is None else int(float(wrong)),
    )


def _ranks(document: dict[str, Any]) -> int | None:
    """Return the ranks: `devices` lists the first device of each process only (parseRankInfo)."""
    config = document.get("config", {})
    processes = len(config.get("devices", ()))
    return processes * config.get("nthreads", 1) * config.get("ngpus", 1) or None
