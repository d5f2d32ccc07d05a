"""Emulated: tables laid out as nccl-tests prints them, from the formats in its sources.

No accelerator is needed and no output of others is copied. `old` is print_header and
print_line_header of all_reduce.cu, broadcast.cu, alltoall.cu and sendrecv.cu in 2019 to 2021, `new`
is writeResultHeader, writeBenchmarkLinePreamble and writeBenchmarkLineBody of src/util.cu (2025),
https://github.com/NVIDIA/nccl-tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Pass = dict[str, Any]
LEFT = {"redop": "sum", "root": -1}
STAMP = "2026-11-20 17:36:02"


def one(size: int, us: float, share: float = 1.5, wrong: int | None = 0) -> Pass:
    """Return one pass whose figures belong together."""
    rate = size / us / 1e3 if us else 0.0
    return {"us": us, "algbw": rate, "busbw": rate * share, "wrong": wrong}


def old(rows: Sequence[dict[str, Any]], names: Sequence[str], blank: Sequence[str] = ()) -> str:
    """Return a table with `error`; names: its columns of redop and root; blank: the empty ones."""
    left = "".join(f"  {name:>6}" for name in names)
    passes = "  {:>7}  {:>6}  {:>6}  {:>5}".format
    lines = ["#", "#" + " " * 40 + "out-of-place                       in-place          "]
    heads = passes("time", "algbw", "busbw", "error")
    lines.append(f"# {'size':>10}  {'count':>12}  {'type':>6}{left}{heads}{heads}")
    units = passes("(us)", "(GB/s)", "(GB/s)", "")
    lines.append(
        f"# {'(B)':>10}  {'(elements)':>12}  {'':>6}{'  ' + ' ' * 6 * len(names)}{units}{units}"
    )
    for row in rows:
        text = f"{row['size']:>12}  {row['size'] // 4:>12}  {'float':>6}"
        for name in names:
            text += f"  {'' if name in blank else row.get(name, LEFT[name]):>6}"
        for part in (row["out"], row["in"]):
            us = part["us"]
            digits = 0 if us >= 10000 else 1 if us >= 100 else 2
            error = "N/A" if part["wrong"] is None else f"{part['wrong']:.0e}"
            text += f"  {us:>7.{digits}f}  {part['algbw']:>6.2f}  {part['busbw']:>6.2f}  {error:>5}"
        lines.append(text)
    return "\n".join(lines) + "\n"


def new(
    rows: Sequence[dict[str, Any]],
    stamps: bool = False,
    per_iteration: bool = False,
    time: str = "time",
) -> str:
    """Return a table with `#wrong`; a pass that is None leaves 32 spaces."""
    heads = f"  {time:>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
    units = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"
    if per_iteration:
        heads += "".join(f"  {name:>7}" for name in ("i_min", "i_max", "i_p99", "i_cv%"))
        units += "".join(f"  {name:>7}" for name in ("(us)", "(us)", "(us)", "(%)"))
    end = f" {'timestamp':>19}" if stamps else " "
    names = f"  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    lines = ["#", "#" + " " * 50 + "out-of-place                       in-place          "]
    lines.append(f"# {'size':>10}{names}{heads}{heads}{end}")
    lines.append(
        f"# {'(B)':>10}  {'(elements)':>12}{' ' * 26}{units}{units}{' %Y-%m-%d %H:%M:%S' * stamps}"
    )
    for row in rows:
        text = f"{row['size']:>12}  {row['size'] // 4:>12}  {'float':>8}"
        text += f"  {row.get('redop', 'sum'):>6}  {row.get('root', -1):>6}"
        for part in (row["out"], row["in"]):
            text += _new_pass(part, per_iteration)
        lines.append(text + (f"{STAMP:>21}" if stamps else ""))
    return "\n".join(lines) + "\n"


def _new_pass(part: Pass | None, per_iteration: bool) -> str:
    if part is None:
        return " " * 32
    figures = (_float(part["us"], 7), _float(part["algbw"], 6), _float(part["busbw"], 6))
    text = "  {:>7}  {:>6}  {:>6}".format(*figures)
    text += "    N/A" if part["wrong"] is None else f"  {part['wrong']:>6g}"
    if per_iteration:
        text += "".join(f"  {_float(part['us'] * share, 7):>7}" for share in (0.9, 1.2, 1.1, 0.01))
    return text


def _float(value: float, width: int) -> str:
    """Return a figure in so many letters, as getFloatStr does."""
    for form in (f"{value:.2f}", f"{value:.1f}", f"{value:.0f}"):
        if len(form) <= width:
            return form
    return f"{value:.1e}" if width >= 7 else f"{value:.0e}"


def devices(ranks: int, hosts: int = 1, group: bool = True, name: str = "NVIDIA H200") -> str:
    """Return the lines about devices, with the group that builds since 2022 print."""
    each = ranks // hosts
    return "# Using devices\n" + "".join(
        f"#  Rank {rank:2} {'Group  0 ' if group else ''}Pid {900 + rank:6} on "
        f"{f'lab{rank // each + 1}':>10} device {rank % each:2} "
        f"[0000:{rank % each:02x}:00] {name}\n"
        for rank in range(ranks)
    )


def footer(average: float, wrong: int = 0) -> str:
    """Return the summary."""
    word = "FAILED" if wrong else "OK"
    return f"# Out of bounds values : {wrong} {word}\n# Avg bus bandwidth    : {average:g} \n#\n"


def document(rows: Sequence[dict[str, Any]], version: int = 1, ranks: int = 4) -> dict[str, Any]:
    """Return what -J writes: booleans as words, the first device of each process only."""

    def timing(part: Pass | None) -> dict[str, Any] | None:
        if part is None:
            return None
        wrong = part["wrong"]
        return {
            "time": part["us"],
            "alg_bw": part["algbw"],
            "bus_bw": part["busbw"],
            "nwrong": None if wrong is None else float(wrong),
        }

    return {
        "version": version,
        "start_time": STAMP,
        "args": ["./build/all_reduce_perf", "-g", str(ranks), "-J", "out.json"],
        "env": [],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1,
            "ngpus": ranks,
            "minimum_bytes": rows[0]["size"],
            "maximum_bytes": rows[-1]["size"],
            "step_factor": 4,
            "warmup_iters": 5,
            "iterations": 20,
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": 0,
            "blocking_collectives": "false",
            "parallel_init": "false",
            "devices": [
                {
                    "rank": 0,
                    "group": 0,
                    "pid": 900,
                    "hostname": "lab1",
                    "device": 0,
                    "device_hex": "0000:00:00",
                    "device_info": "NVIDIA H200",
                }
            ],
        },
        "results": [
            {
                "size": row["size"],
                "count": row["size"] // 4,
                "type": "float",
                "redop": row.get("redop", "sum"),
                "root": f"{row.get('root', -1):6}",
                "out_of_place": timing(row["out"]),
                "in_place": timing(row["in"]),
                **({"actual_iterations": 20} if version > 1 else {}),
            }
            for row in rows
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 210.5, "okay": "unchecked"},
        "errors": [],
        "end_time": STAMP,
    }


def text_document(rows: Sequence[dict[str, Any]], version: int = 1) -> str:
    """Return the document as text, without a space, as the program writes it."""
    return json.dumps(document(rows, version), separators=(",", ":"))
