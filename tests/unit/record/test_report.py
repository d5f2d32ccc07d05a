"""The report tells what is known, says what is not, and stands alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.record import report
from vllm_ansible.record.summary import summarise

from .conftest import REPOSITORY

PLAN = {
    "version": 1,
    "cluster": "lab",
    "engines": [
        {
            "name": "chat",
            "model": "SmolLM2",
            "executor": "ray",
            "layout": {"tensor": 2, "pipeline": 2},
            "ports": {"api": 8000},
            "ranks": [
                {"rank": rank, "host": "one" if rank < 2 else "two", "device": rank % 2}
                for rank in range(4)
            ],
            "reasons": ["it is the only one that fits"],
        }
    ],
}
HOST = {
    "name": "one",
    "address": "10.0.0.1",
    "accelerator": "cpu",
    "accelerator_count": 2,
    "supervisor": "systemd",
    "distribution": "Debian 12",
    "architecture": "x86_64",
    "memory_bytes": 8 * 2**30,
}
SERVED = {
    "name": "chat",
    "endpoint": "http://10.0.0.1:8000/v1",
    "question": "What is the capital of France?",
    "answer": "Paris.",
    "seconds": 0.42,
    "model": "chat",
    "attention": {"used": ["FLASHMLA"], "misses": []},
    "start_seconds": {
        "starting": 31.0,
        "loading": 4.4,
        "compiling kernels": 104.0,
        "first answer": 0.4,
    },
}
MEASURED = {"name": "chat", "requests": 8, "ttft_ms_median": 48.26, "output_tokens_per_second": 61}


def event(second: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {"time": f"2026-11-20T10:31:{second:06.3f}Z", "event": kind, **fields}


def evidence(second: float, gate: str, **values: Any) -> dict[str, Any]:
    return event(
        second, "evidence", stage=gate, host="one", gate=gate, summary=f"{gate} ok", values=values
    )


def good() -> list[dict[str, Any]]:
    return [
        event(0, "run_start", run="r1", cluster="lab", command="ansible-playbook site.yml"),
        event(0, "stage_start", stage="prepare"),
        evidence(1, "prepare", hosts=[HOST]),
        evidence(1.5, "install", python="3.11.2", vllm="0.32.0", ray="2.60.0"),
        event(2, "stage_end", stage="prepare", seconds=2.0, ok=True),
        event(2, "stage_start", stage="serve"),
        evidence(9, "serve", engines=[SERVED]),
        event(10, "stage_end", stage="serve", seconds=8.0, ok=True),
        evidence(10, "benchmark", engines=[MEASURED]),
        event(12, "run_end", ok=True, changed=3, failures=0, seconds=12.0),
    ]


def failed() -> list[dict[str, Any]]:
    failure = {
        "stage": "serve",
        "task": "vllm : Wait",
        "msg": "The engine did not start",
        "found": "<script>alert(1)</script>",
        "cause": "a cause",
        "fix": "run `make up` again",
    }
    return [
        *good()[:6],
        event(3, "failure", host="one", **failure),
        event(3, "failure", host="two", **failure),
        event(4, "warning", stage="serve", host="two", text="memlock is small"),
        event(5, "stage_end", stage="serve", seconds=3.0, ok=False),
        event(5, "run_end", ok=False, changed=1, failures=2, seconds=5.0),
    ]


def page(directory: Path, record: list[dict[str, Any]], plan: Any = None) -> str:
    lines = [json.dumps(one) for one in record]
    (directory / "events.jsonl").write_text("\n".join(lines) + "\n")
    if plan is not None:
        (directory / "plan.json").write_text(json.dumps(plan))
    return report.write(directory).read_text()


def words(html: str) -> str:
    """Return what a reader sees."""
    body = html.split("</style>")[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_a_good_run_shows_its_answer_its_figures_and_its_layout(tmp_path: Path) -> None:
    seen = words(page(tmp_path, good(), PLAN))
    for text in (
        "Up and answering",
        "20 November 2026, 10:31 UTC",
        "What is the capital of France?",
        "Paris.",
        "Attention backend FLASHMLA",
        "Starts Engine Whole Starting Loading Compiling kernels First answer "
        "chat 2 m 20 s 31 s 4.4 s 1 m 44 s 0.4 s",
        "48.3 ms",
        "61 tokens/s",
        "10.0.0.1",
        "Debian 12, x86_64",
        "8.0 GiB",
        "vllm 0.32.0",
        "rank 3",
        "two, device 1",
        "it is the only one that fits",
        "ansible-playbook site.yml",
    ):
        assert text in seen, text


def test_how_long_weights_were_loaded_stands_beside_what_was_expected(tmp_path: Path) -> None:
    loading = {"expected_seconds": 191.0, "seconds": 204.5, "hosts": {}, "advice": []}
    served = {**SERVED, "loading": loading}
    record = [*good()[:-1], evidence(50, "serve", engines=[served]), good()[-1]]
    assert "Weights loaded in, and expected 3 m 24 s, 3 m 11 s" in words(page(tmp_path, record))
    assert "Weights loaded in" not in words(page(tmp_path, good()))


def test_a_row_is_a_pipeline_stage_and_a_colour_is_a_host(tmp_path: Path) -> None:
    page(tmp_path, good(), PLAN)
    rows = report.engines(summarise(tmp_path))[0]["grid"]
    assert [[rank["rank"] for rank in row] for row in rows] == [[0, 1], [2, 3]]
    assert [row[0]["colour"] for row in rows] == [0, 1]


def test_each_data_rank_is_shown_with_its_address(tmp_path: Path) -> None:
    ranks = [
        {"rank": rank, "host": "one", "endpoint": f"http://10.0.0.1:{20020 + rank}/v1"}
        for rank in (0, 1)
    ]
    record = good()
    record[6] = evidence(9, "serve", engines=[{**SERVED, "ranks": ranks}])
    seen = words(page(tmp_path, record, PLAN))
    assert "Data rank 0, on one http://10.0.0.1:20020/v1" in seen
    assert "Data rank 1, on one http://10.0.0.1:20021/v1" in seen
    assert "http://10.0.0.1:8000/v1" not in seen


def test_a_failed_run_shows_each_failure_once_with_its_hosts(tmp_path: Path) -> None:
    html = page(tmp_path, failed(), PLAN)
    seen = words(html)
    assert "Failed in stage serve" in seen
    assert html.count("The engine did not start") == 1
    assert "one, two" in seen
    assert "a cause" in seen
    assert "<code>make up</code>" in html
    assert "memlock is small" in seen


def test_what_hosts_said_is_text_and_never_markup(tmp_path: Path) -> None:
    html = page(tmp_path, failed())
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    html = page(tmp_path, good(), PLAN)
    assert not re.search(r"(?:src|href)=|url\(|@import", html)


@pytest.mark.parametrize("count", range(len(good())))
def test_a_record_that_stops_anywhere_still_becomes_a_report(tmp_path: Path, count: int) -> None:
    seen = words(page(tmp_path, good()[:count]))
    assert "Not finished" in seen
    assert "not measured" in seen


def test_missing_parts_are_said_to_be_missing(tmp_path: Path) -> None:
    record = [*good()[:6], evidence(9, "serve", engines=[{"name": "chat"}]), good()[-1]]
    html = page(tmp_path, record, {"engines": [{"name": "chat"}]})
    assert words(html).count("not measured") >= 5


@pytest.mark.parametrize("plan", [[], {"engines": None}, {"engines": ["x"]}, "text"])
def test_a_plan_of_another_shape_does_not_stop_it(tmp_path: Path, plan: Any) -> None:
    assert "Up and answering" in page(tmp_path, good(), plan)


def test_a_line_that_a_killed_writer_left_is_passed_over(tmp_path: Path) -> None:
    page(tmp_path, good())
    with (tmp_path / "events.jsonl").open("a") as record:
        record.write('{"time": "2026-11-20T10:32:0')
    assert summarise(tmp_path).ok


def test_check_mode_says_that_nothing_was_changed(tmp_path: Path) -> None:
    record = good()
    record[0]["check"] = True
    task = event(1, "task", stage="prepare", task="r : Make it", host="one", status="changed")
    seen = words(page(tmp_path, [*record[:2], task, record[-1]]))
    assert "Checked, nothing was changed" in seen
    assert "What would change" in seen
    assert "prepare: Make it" in seen


def test_a_stage_without_evidence_says_what_it_did(tmp_path: Path) -> None:
    asked = [
        event(1, "task", stage="prepare", task=f"r : {name}", host="one", status="ok")
        for name in ("Ask", "Look")
    ]
    start, begun, _, _, ended, *_, last = good()
    seen = words(page(tmp_path, [start, begun, *asked, ended, last]))
    assert "2 checks, nothing to change" in seen
    asked[0]["status"] = "changed"
    assert "2 tasks, 1 changed" in words(page(tmp_path, [start, begun, *asked, ended, last]))


def test_hosts_that_measured_apart_are_joined(tmp_path: Path) -> None:
    two = {**HOST, "name": "two", "address": "10.0.0.2"}
    record = [good()[0], evidence(1, "prepare", hosts=[HOST]), evidence(1, "prepare", hosts=[two])]
    page(tmp_path, record)
    assert [host["name"] for host in report.hosts(summarise(tmp_path))] == ["one", "two"]


def test_it_is_rendered_again_from_the_command_line(tmp_path: Path) -> None:
    page(tmp_path, good(), PLAN)
    (tmp_path / "report.html").unlink()
    command = [sys.executable, "-m", "vllm_ansible.record"]
    environment = {"PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(
        [*command, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").exists()
    wrong = subprocess.run(
        [*command, "/nowhere"], env=environment, capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "holds no events.jsonl" in wrong.stderr


def test_starts_have_a_column_for_each_cause_that_one_of_them_has(tmp_path: Path) -> None:
    second = {**SERVED, "name": "code", "start_seconds": {"starting": 9.0, "profiling": 2.5}}
    served = {**SERVED, "name": "served", "start_seconds": {}}
    record = [*good()[:-1], evidence(10.5, "serve", engines=[second, served]), good()[-1]]
    seen = words(page(tmp_path, record, PLAN))
    head = "Engine Whole Starting Loading Compiling kernels Profiling First answer"
    assert f"{head} chat 2 m 20 s 31 s 4.4 s 1 m 44 s 0.4 s code 12 s 9.0 s 2.5 s " in seen


def test_a_run_that_started_no_engine_says_nothing_of_starts(tmp_path: Path) -> None:
    old = {name: value for name, value in SERVED.items() if name != "start_seconds"}
    record = [
        evidence(9, "serve", engines=[old]) if one.get("gate") == "serve" else one for one in good()
    ]
    assert "Starts" not in words(page(tmp_path, record, PLAN))
