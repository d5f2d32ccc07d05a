"""Whatever is cut, mixed or logged in between, no figure is made up."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.verify.collectives import nccl_tests
from vllm_ansible.verify.collectives.report import UnreadableOutput

_spec = importlib.util.spec_from_file_location("printed", Path(__file__).with_name("printed.py"))
printed = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(printed)

LOG = "lab-2:123:456 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


@st.composite
def tables(draw):
    """Return rows and how they are printed."""
    sizes = draw(st.lists(st.integers(6, 34), min_size=1, max_size=6, unique=True))
    rows = []
    for size in sorted(sizes):
        passes = [
            printed.one(2**size, 2**size / draw(st.floats(0.05, 900)) / 1e3 + 0.5) for _ in range(2)
        ]
        rows.append({"size": 2**size, "out": passes[0], "in": passes[1]})
    form = draw(st.sampled_from(["old", "new", "stamps", "per_iteration"]))
    if form == "old":
        names = draw(st.sampled_from([("redop",), ("root",), ()]))
        table = printed.old(rows, names)
    else:
        table = printed.new(rows, form == "stamps", form == "per_iteration")
    return rows, printed.devices(4) + table + printed.footer(1.0)


def same(found, rows) -> None:
    """Hold what was read against what was printed, to the printed digits."""
    known = {row["size"]: row for row in rows}
    for row in found.rows:
        for part, name in ((row.out_of_place, "out"), (row.in_place, "in")):
            if part is not None:
                us = known[row.bytes][name]["us"]
                assert abs(part.seconds * 1e6 - us) <= max(0.51 if us >= 1e4 else 0.051, us / 15)
                assert abs(part.busbw - known[row.bytes][name]["busbw"]) <= 0.051 + part.busbw / 100


@given(tables())
def test_a_whole_table_is_read_whole(table):
    rows, text = table
    report = nccl_tests.parse(text)
    assert [row.bytes for row in report.rows] == [row["size"] for row in rows]
    assert report.complete
    assert report.said == ()
    same(report, rows)


@given(tables(), st.data())
def test_a_table_cut_anywhere_gives_only_what_it_holds(table, data):
    rows, text = table
    end = data.draw(st.integers(0, len(text) - 1))
    try:
        report = nccl_tests.parse(text[:end])
    except UnreadableOutput:
        return
    same(report, rows)
    whole = "Avg bus bandwidth" in text[:end] and text[:end].count("\n") >= text.count("\n") - 1
    assert report.complete == whole
    assert report.said or whole


@given(tables(), st.data())
def test_logs_anywhere_between_columns_change_nothing(table, data):
    rows, text = table
    lines = []
    for line in text.splitlines():
        if line[:1] == " " and data.draw(st.booleans()):
            gaps = [at for at in range(1, len(line)) if line[at] == " " and line[at - 1] != " "]
            # Programs print the first columns in one piece, and a date with its time.
            gaps = [at for at in gaps if at > 45 and not line[:at].endswith(printed.STAMP[:10])]
            at = data.draw(st.sampled_from(gaps))
            lines += [line[:at] + LOG, line[at:]]
        else:
            lines += [line, LOG]
    report = nccl_tests.parse("\n".join(lines) + "\n")
    assert [row.bytes for row in report.rows] == [row["size"] for row in rows]
    same(report, rows)


@given(st.text(alphabet='# 0123456789.-eNA/sizecounttypetimealgbwbusbw\n{}"', max_size=300))
def test_any_text_is_read_or_refused_in_one_sentence(text):
    try:
        nccl_tests.parse(text)
    except UnreadableOutput as error:
        assert error.problems[0].fix
