"""What is left of a sweep, what became of a point, what is written; a real play on two hosts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.problem import PlanError

LOAD = {"rounds": 4, "least_requests": 16, "input_tokens": 64, "output_tokens": 32}
ENGINES = [{"name": name, "model": "m", "layout": "auto"} for name in ("chat", "code")]
ARGUMENTS = ["--max-num-seqs", "4", "--max-num-batched-tokens", "64"]
PLANNED = {"layout": {"tensor": 1, "pipeline": 2}, "arguments": ARGUMENTS, "hosts": ["n2", "n1"]}
PLAN = {
    "engines": [
        {**PLANNED, "name": "chat", "estimate": {"output_tokens_per_second": [10, 20, 40]}},
        {**PLANNED, "name": "code", "estimate": {}},
    ]
}
PART = {**PLANNED, "name": "chat-2", "part_of": "chat", "estimate": {}}
FIGURES = {"output_tokens_per_second": 31.5, "concurrency": 4, "measured_at": "then"}
POINT = {"max_num_seqs": 4, "max_num_batched_tokens": 64}
GOOD = {**POINT, "ok": True, "figures": FIGURES, "predicted": [10, 20, 40]}
BAD = {**POINT, "max_num_seqs": 8, "ok": False, "failure": {"msg": "no room", "host": "n2"}}
DOCUMENT = {"version": 1, "engine": "chat", "fingerprint": "f", "before": PLAN, "points": []}
HOSTS = {
    "n1": {"evidence": {"skipped": True}, "ansible_failed_result": {}},
    "n2": {
        "evidence": {
            "content": base64.b64encode(json.dumps({"figures": FIGURES}).encode()).decode()
        },
        "ansible_failed_result": {"msg": "No answer from chat", "cause": "no room", "fix": "less"},
    },
}


def task(name: str, action: str, **arguments: Any) -> dict[str, Any]:
    more = {key: arguments.pop(key) for key in ("check_mode",) if key in arguments}
    return {"name": name, action: arguments, "run_once": True, **more}


def asked(name: str, **more: Any) -> dict[str, Any]:
    arguments = {
        "engine": "chat",
        "engines": ENGINES,
        "plan": PLAN,
        "kept": {},
        "max_num_seqs": [8, 4],
        "max_num_batched_tokens": [64],
        "points": [],
        "load": LOAD,
        "environment": "e",
        "again": False,
        "failed_again": False,
    }
    return task(name, "sweep_points", **{**arguments, **more})


def became(name: str, measured: bool, **more: Any) -> dict[str, Any]:
    arguments = {"document": DOCUMENT, "point": POINT, "plan": PLAN, "evidence": "evidence"}
    arguments |= {"load": {"concurrency": 4}, "measured": measured, **more}
    return task(name, "sweep_point", **arguments)


def shown(name: str, *points: dict[str, Any], **more: Any) -> dict[str, Any]:
    return task(name, "sweep_report", document={**DOCUMENT, "points": list(points)}, **more)


@pytest.fixture(scope="module")
def run_dir(shared_play: Any) -> Path:
    directory: Path = shared_play.directory / "run"
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def played(shared_play: Any, run_dir: Path) -> Any:
    return shared_play(
        [
            # First, since a refused task leaves its own words on its host.
            became("measured", True),
            became("failed", False),
            became("another load", True, load={"concurrency": 8}),
            asked("fresh"),
            asked("gone", engines=[{"name": "other", "model": "m"}]),
            asked("which", engine=""),
            asked("unknown", engine="chatt"),
            asked("nothing planned", plan={}),
            asked("no points", max_num_seqs=[]),
            asked("a set", plan={"engines": [*PLAN["engines"], PART]}),
            asked("apart", plan={"engines": [{**PLAN["engines"][0], "role": "prefill"}]}),
            shown("two points", GOOD, BAD),
            shown("none", BAD),
            shown("nothing at all"),
            shown("check mode", GOOD, check_mode=True),
        ],
        HOSTS,
        {"VLLM_ANSIBLE_RUN_DIR": str(run_dir)},
    )


def test_every_point_brings_its_engines_and_its_load(played: Any) -> None:
    found = played["fresh"]
    assert [one["name"] for one in found["left"]] == ["4 x 64", "8 x 64"]
    first = found["left"][0]
    assert first["engines"][0]["vllm_args"] == POINT
    assert first["engines"][0]["layout"] == PLANNED["layout"]
    assert first["engines"][1] == ENGINES[1]
    assert (first["load"]["requests"], first["load"]["concurrency"]) == (16, 4)
    assert found["document"]["before"] == PLAN
    assert (found["changed"], found["disturbed"]) == (False, False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("which", "which engine"),
        ("unknown", "no engine chatt"),
        ("nothing planned", "run site.yml first"),
        ("no points", "there is no point"),
        ("a set", "chat with layout: auto is the engines chat, chat-2"),
        ("apart", "chat has role: prefill, and what is measured"),
        ("gone", "the inventory has no engine chat"),
        ("another load", "not the point 4 x 64"),
    ],
)
def test_what_cannot_be_measured_is_refused(played: Any, name: str, words: str) -> None:
    refused = played[name]
    assert refused["failed"]
    assert words in refused["msg"]
    assert refused["expected"]


def test_figures_come_from_the_host_that_has_them_beside_the_prediction(played: Any) -> None:
    found = played["measured"]
    assert found["document"]["points"] == [GOOD]
    assert found["evidence"]["summary"] == "4 x 64: 31.5 tokens/s"


def test_a_failure_is_that_of_the_host_that_has_one(played: Any) -> None:
    (point,) = played["failed"]["document"]["points"]
    assert point["failure"] == {**HOSTS["n2"]["ansible_failed_result"], "host": "n2"}
    assert played["failed"]["evidence"]["summary"] == "4 x 64: failed: No answer from chat"


def test_the_files_lie_beside_the_record(played: Any, run_dir: Path) -> None:
    found = played["two points"]["evidence"]
    assert found["summary"].startswith("chat: 1 points, most with 4 x 64: 31.5 tokens/s; failed: 8")
    names = {"sweep-chat.json", "sweep-chat.csv", "sweep-chat.md", "sweep-chat.svg"}
    assert {Path(one).name for one in found["values"]["files"]} == names
    assert names == {path.name for path in run_dir.iterdir()}


def test_a_sweep_without_any_figure_fails_with_the_first_reason(played: Any) -> None:
    failed = played["none"]
    assert failed["failed"]
    assert (failed["found"], failed["msg"]) == (
        "no room",
        "chat: none of 1 points could be measured",
    )
    assert played["nothing at all"]["failed"]
    assert played["check mode"]["skipped"]


def test_what_the_command_line_says_of_points_is_refused_before_any_is_measured() -> None:
    """An engine was started anew and measured for minutes before this was seen."""
    from action_plugins.sweep_points import _refuse_said_before

    _refuse_said_before({"sweep_engine": "chat", "allow_disruption": True})
    with pytest.raises(PlanError, match="-e says engines, benchmark_requests, and every point"):
        _refuse_said_before({"engines": [], "benchmark_requests": 4})
