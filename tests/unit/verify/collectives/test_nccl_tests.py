"""Every format of nccl-tests is read by its header, and what is cut or wrong is said."""

import json

import pytest

from vllm_ansible.verify.collectives import eccl_tests, nccl_tests
from vllm_ansible.verify.collectives.report import UnreadableOutput

GIB = 2**30
ALL_REDUCE = [
    "2019-all_reduce.txt",
    "2022-all_reduce.txt",
    "2025-all_reduce-cputime.txt",
    "2025-all_reduce-timestamps.txt",
    "2026-all_reduce-per-iteration.txt",
    "interleaved.txt",
    "mpirun-tagged.txt",
    "srun-labelled.txt",
    "version-1.json",
    "version-2.json",
]


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_every_format_gives_the_same_numbers(kept, name):
    report = nccl_tests.parse(kept(f"formats/{name}"), "all_reduce_perf")
    row = next(row for row in report.rows if row.bytes == GIB)
    assert [one.bytes for one in report.rows] == [
        GIB >> 8,
        GIB >> 6,
        GIB >> 4,
        GIB >> 2,
        GIB,
        4 * GIB,
    ]
    assert (row.count, row.type, row.redop) == (GIB // 4, "float", "sum")
    assert row.root == (None if name.startswith("2019") else -1)
    assert row.out_of_place.seconds == pytest.approx(0.0045605, rel=1e-4)
    assert row.out_of_place.algbw == pytest.approx(235.45, abs=0.01)
    assert row.out_of_place.busbw == pytest.approx(353.17, abs=0.01)
    assert row.in_place.busbw == pytest.approx(349.67, abs=0.01)
    assert report.operation == "all_reduce"
    assert report.wrong == 0
    assert report.complete
    assert report.said == ()


@pytest.mark.parametrize(
    ("name", "redop", "root"),
    [
        ("2019-broadcast.txt", None, 0),
        ("2021-alltoall.txt", None, None),
        ("2021-sendrecv.txt", None, None),
        ("2022-alltoall.txt", None, -1),
        ("2022-all_gather-unchecked.txt", None, -1),
    ],
)
def test_operations_without_reduction_or_root_keep_their_figures(kept, name, redop, root):
    report = nccl_tests.parse(kept(f"formats/{name}"))
    for row in report.rows:
        assert (row.redop, row.root) == (redop, root)
        assert row.out_of_place.algbw == pytest.approx(
            row.bytes / row.out_of_place.seconds / 1e9, rel=0.01
        )


def test_ranks_are_counted_and_versions_told(kept):
    assert nccl_tests.parse(kept("formats/interleaved.txt")).ranks == 8
    assert nccl_tests.parse(kept("formats/version-2.json")).ranks == 4
    assert nccl_tests.parse(kept("formats/2022-all_reduce.txt")).version == "2.28.9+cuda13.0"
    assert nccl_tests.parse(kept("formats/2025-all_reduce-wrong.txt")).version == "2.28.9"
    assert nccl_tests.parse(kept("formats/version-1.json")).version == "2.28.9"


def test_a_run_in_place_only_has_no_figures_out_of_place(kept):
    report = nccl_tests.parse(kept("formats/2025-all_reduce-in-place.txt"))
    assert all(row.out_of_place is None for row in report.rows)
    assert report.curve[GIB] == pytest.approx(349.67)
    assert report.said == ()


def test_unchecked_results_are_not_called_right(kept):
    assert nccl_tests.parse(kept("formats/2022-all_gather-unchecked.txt")).wrong is None


def test_wrong_results_are_counted(kept):
    assert nccl_tests.parse(kept("formats/2025-all_reduce-wrong.txt")).wrong == 1
    document = json.loads(kept("formats/version-2.json"))
    document["out_of_bounds"] = {"count": 3, "okay": "false"}
    assert nccl_tests.parse(json.dumps(document)).wrong == 3


def test_a_deviation_of_an_old_build_is_no_count_of_wrong_results(kept):
    row = nccl_tests.parse(kept("formats/2019-all_reduce.txt")).rows[0]
    assert row.out_of_place.deviation == 5e-7
    assert row.out_of_place.wrong is None


def test_a_build_without_mpi_is_told_from_its_ranks(kept):
    report = nccl_tests.parse(kept("formats/without-mpi.txt"))
    assert "2 processes are rank 0 each" in report.said[0]
    assert report.curve[GIB] == 0


def test_output_that_was_cut_off_says_so(kept):
    text = kept("formats/2025-all_reduce-wrong.txt")
    cut = text[: text.index("268435456") + 60]
    report = nccl_tests.parse(cut)
    assert max(report.curve) == GIB >> 4
    assert not report.complete
    assert report.out_of_bounds is None
    assert any("ends within it" in one for one in report.said)
    assert any("before its summary" in one for one in report.said)


def test_a_row_cut_after_its_first_pass_keeps_that_pass(kept):
    lines = kept("formats/2022-all_reduce.txt").splitlines()
    last = next(place for place, line in enumerate(lines) if line.startswith("  1073741824"))
    lines[last] = lines[last][:85]
    report = nccl_tests.parse("\n".join(lines[: last + 1]) + "\n")
    assert report.rows[-1].bytes == GIB
    assert report.rows[-1].in_place is None
    assert any("no figures in place" in one for one in report.said)


def test_json_that_was_cut_off_is_refused(kept):
    text = kept("formats/version-2.json")
    with pytest.raises(UnreadableOutput, match="ends in the middle"):
        nccl_tests.parse(text[: len(text) // 2])


def test_json_without_its_summary_is_incomplete(kept):
    document = json.loads(kept("formats/version-2.json"))
    del document["out_of_bounds"], document["average_bus_bandwidth"]
    report = nccl_tests.parse(json.dumps(document))
    assert not report.complete
    assert report.wrong == 0


def test_json_knows_processor_time_null_and_infinity(kept):
    document = json.loads(kept("formats/version-2.json"))
    first = document["results"][0]
    first["out_of_place"] = None
    first["in_place"] = {"cpu_time": 12.5, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": None}
    text = json.dumps(document, separators=(",", ":")).replace('"alg_bw":1.0', '"alg_bw":inf')
    row = nccl_tests.parse(text).rows[0]
    assert row.out_of_place is None
    assert row.in_place.seconds == pytest.approx(12.5e-6)
    assert row.in_place.algbw == float("inf")
    assert row.in_place.wrong is None


@pytest.mark.parametrize("text", ['{"results": [{"size": 1}]}', '{"other": 1}', '{"results": 3}'])
def test_json_of_something_else_is_refused(text):
    with pytest.raises(UnreadableOutput, match="not that of nccl-tests"):
        nccl_tests.parse(text)


def test_a_crash_is_quoted(kept):
    with pytest.raises(UnreadableOutput) as error:
        nccl_tests.parse(kept("formats/crashed.txt"))
    assert "unhandled cuda error" in error.value.problems[0].found


@pytest.mark.parametrize("text", ["", "bash: all_reduce_perf: command not found\n"])
def test_no_table_is_refused_with_the_last_line(text):
    with pytest.raises(UnreadableOutput, match="no table") as error:
        nccl_tests.parse(text)
    assert error.value.problems[0].found in ("nothing at all", text.strip())


def test_a_table_of_before_2019_is_refused_and_not_guessed(kept):
    with pytest.raises(UnreadableOutput, match="before 2019"):
        nccl_tests.parse(kept("formats/ancient.txt"))


HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
ROW = "  1073741824     268435456     float     sum      -1   4560.5  235.45  353.17      0\n"


def test_a_header_with_other_columns_is_refused():
    with pytest.raises(UnreadableOutput, match="columns"):
        nccl_tests.parse(HEADER.replace("busbw", "speed") + ROW)


def test_unknown_units_are_refused():
    with pytest.raises(UnreadableOutput, match="units"):
        nccl_tests.parse(HEADER + "#  (B)  (elements)  (fortnights)  (GB/s)  (GB/s)\n" + ROW)


def test_figures_that_do_not_belong_together_are_left_out():
    with pytest.raises(UnreadableOutput, match="no row"):
        nccl_tests.parse(HEADER + ROW.replace("4560.5", "45605."))
    mixed = HEADER + ROW + ROW.replace("4560.5", "45605.").replace("1073741824", "2147483648")
    report = nccl_tests.parse(mixed)
    assert [row.bytes for row in report.rows] == [GIB]
    assert "do not belong together" in report.said[0]


def test_a_last_line_without_its_end_is_not_trusted():
    report = nccl_tests.parse(HEADER + ROW + ROW.replace("1073741824", "2147483648").rstrip("0\n"))
    assert [row.bytes for row in report.rows] == [GIB]
    cut = (
        HEADER + ROW + ROW.replace("   4560.5", "   9121.0").replace(" 107374", " 214748").rstrip()
    )
    assert [row.bytes for row in nccl_tests.parse(cut).rows] == [GIB]


def test_a_row_is_held_against_the_header_it_stands_under():
    twice = HEADER.rstrip() + "     time   algbw   busbw #wrong\n"
    report = nccl_tests.parse(twice + ROW.replace("1073", "1074") + HEADER + ROW)
    assert [row.bytes for row in report.rows] == [1074741824, GIB]
    assert report.said[0] == "the row of 1074741824 bytes has no figures in place"


@pytest.mark.parametrize("word", ["nan", "-nan", "x12"])
def test_a_figure_that_is_no_number_leaves_its_row_out(word):
    report = nccl_tests.parse(HEADER + ROW + ROW.replace("353.17", word).replace(" 1073", " 2073"))
    assert len(report.rows) == 1
    assert "left out" in report.said[0]


def test_eccl_is_read_by_the_same_header_in_its_own_units():
    units = "#        (B)    (elements)                               (ms)  (MB/s)  (MB/s)\n"
    row = "  1073741824     268435456     float     sum      -1    45.61   23542   41198      0\n"
    report = eccl_tests.parse(HEADER + units + row, "/usr/local/bin/eccl_all_reduce_perf")
    assert report.operation == "all_reduce"
    assert report.curve[GIB] == pytest.approx(41.198)
    assert report.rows[0].out_of_place.seconds == pytest.approx(0.04561)


@pytest.mark.parametrize("program", ["eccl_alltoall_perf", "eccl_all_to_all_perf"])
def test_both_names_of_an_exchange_are_known(program):
    assert eccl_tests.parse(HEADER + ROW, program).operation == "all_to_all"


def test_eccl_with_another_table_is_refused():
    with pytest.raises(UnreadableOutput, match="eccl printed no table"):
        eccl_tests.parse("bytes  latency  bandwidth\n1024  12  3.4\n", "eccl_all_reduce_perf")
