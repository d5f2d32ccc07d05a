"""What the waits of all engines found, judged and explained; a real play on two hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.record import events, outcome

ANSWER = {
    "ready": True,
    "endpoint": "http://10.0.0.1:8000/v1",
    "question": "Which city?",
    "answer": "It is\nParis.",
    "seconds": 0.5,
}
SILENT = {
    "ready": False,
    "silent": True,
    "expected": "a correct completion from b at http://10.0.0.2:8001",
    "found": "b-serve ended with exit status 1 while loading; last line: bye",
}
LOG = """\
INFO 11-20 10:39:49 [api_server.py:1] vllm serve --api-key k-123456789 --port 1
ERROR 11-20 10:39:50 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate
"""
NO_GPUS = "RuntimeError: No CUDA GPUs are available\n"
EARLIER = "ERROR 11-20 10:30:00 [core.py:1] ValueError: no such model\n"
HOSTS = {
    "n1": {
        "waits": {
            "results": [{**ANSWER, "item": {"name": "a"}}, {"item": {"name": "b"}, "skipped": True}]
        },
        "logs": {"tails": {"a-serve": "INFO all is well\n"}},
        "mixed": {"tails": {}, "of_engine": {"a": [], "b": []}},
    },
    "n2": {
        "waits": {
            "results": [{"item": {"name": "a"}, "skipped": True}, {**SILENT, "item": {"name": "b"}}]
        },
        "logs": {"tails": {"b-serve": LOG}},
        "mixed": {
            "tails": {"a-serve": EARLIER, "b-serve": LOG},
            "of_engine": {"a": ["a-serve"], "b": ["b-serve"]},
        },
    },
}
ENGINES = [
    {
        "name": name,
        "model": f"o/{name}",
        "served_name": f"m-{name}",
        "hosts": [host],
        "arguments": ["--max-num-seqs", "112"],
    }
    for name, host in (("a", "n1"), ("b", "n2"))
]


FORECAST = {"seconds": 28.0, "hosts": {"n1": {"bytes": 7}}, "advice": [], "line": "x"}
THOUGHTS = {"reasoning": "Let me think. " * 10, "answer": ""}
STARTED = {"start": {"starting": 31.0, "compiling kernels": 104.0, "first answer": 0.5}}
OTHER_ATTENTION = {"attention": {"used": ["CPU_MLA"], "refused": ["FLASHMLA"]}}
RANKED = {**ENGINES[0], "layout": {"tensor": 1, "pipeline": 1, "data": 2}}
RANKS = [
    {"rank": rank, "endpoint": f"http://10.0.0.1:{20020 + rank}/v1", "answer": "Paris."}
    for rank in (0, 1)
]


def once(name: str, action: str, **arguments: Any) -> dict[str, Any]:
    more = {key: arguments.pop(key) for key in ("check_mode",) if key in arguments}
    return {"name": name, action: arguments, "run_once": True, **more}


def gate(name: str, engines: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    verdicts = {"ready": more.pop("ready", {"a": ANSWER}), "unready": {}}
    arguments = {"verdicts": verdicts, "engines": engines, "api_key_file": "/state/api_key"}
    for given in ("routers", "loading"):
        if given in more:
            arguments[given] = more.pop(given)
    return once(name, "gate", judge="serve", of=arguments, **more)


@pytest.fixture(scope="module")
def run_dir(shared_play: Any) -> Path:
    directory: Path = shared_play.directory / "run"
    directory.mkdir()
    values = {"facts": {"n1": {"devices": 8}}}
    events.append(directory, {"event": "evidence", "gate": "preflight", "values": values})
    return directory


@pytest.fixture(scope="module")
def played(shared_play: Any, run_dir: Path) -> Any:
    title = {"title": "No answer from b"}
    each = {"title": "No answer from {{ item }}", "engine": "{{ item }}", "verdict": SILENT}
    both = ["a", "b"]
    return shared_play(
        [
            once("verdicts", "engine_verdicts", waits="waits"),
            once("nobody waited", "engine_verdicts", waits="other_waits"),
            gate("all answered", ENGINES[:1]),
            gate("another attention", ENGINES[:1], ready={"a": {**ANSWER, **OTHER_ATTENTION}}),
            gate("started in this run", ENGINES[:1], ready={"a": {**ANSWER, **STARTED}}),
            gate(
                "one was loaded",
                ENGINES[:1],
                ready={"a": {**ANSWER, "figures": {"loading_seconds": 31.5}}},
                loading={"a": FORECAST},
            ),
            gate("thoughts alone", ENGINES[:1], ready={"a": {**ANSWER, **THOUGHTS}}),
            gate("one was not asked", ENGINES),
            gate("all ranks answered", [RANKED], ready={"a": {**ANSWER, "ranks": RANKS}}),
            gate(
                "a router stands",
                [RANKED],
                ready={"a": {**ANSWER, "ranks": RANKS}},
                routers={"a": "http://10.0.0.1:8000"},
            ),
            gate(
                "a set is asked at its address",
                ENGINES[:1],
                ready={"a": ANSWER},
                routers={"a": "http://10.0.0.1:8000"},
            ),
            gate("a rank was idle", [RANKED], ready={"a": {**ANSWER, "ranks": RANKS[:1]}}),
            gate("an empty answer", ENGINES[:1], ready={"a": {**ANSWER, "answer": ""}}),
            gate("nothing was asked", ENGINES[:1], ready={"a": {"ready": True, "waited": False}}),
            once("all is well", "diagnose", **title, verdict={"ready": True}, logs_of="logs"),
            once("the line", "diagnose", **title, stage="serve", verdict=SILENT, logs_of="logs"),
            once("no line", "diagnose", **title, verdict=SILENT, logs={"n1": {"a": "well\n"}}),
            once("beside the evidence", "diagnose", **title, logs={"n1": {"b": NO_GPUS}}),
            once("no log", "diagnose", **title),
            once("of b", "diagnose", **title, verdict=SILENT, logs_of="mixed", engine="b"),
            {**once("each", "diagnose", **each, logs_of="mixed"), "loop": both},
            once("no title", "diagnose", verdict=SILENT),
            once("no logs", "diagnose", **title, logs="text"),
            once("check mode", "diagnose", **title, verdict=SILENT, check_mode=True),
        ],
        HOSTS,
        {"VLLM_ANSIBLE_RUN_DIR": str(run_dir)},
    )


def test_waits_are_gathered_over_hosts_and_skipped_ones_are_none(played: Any) -> None:
    found = played["verdicts"]
    assert found["ready"].keys() == {"a"} and found["ready"]["a"]["answer"] == ANSWER["answer"]
    assert found["unready"].keys() == {"b"} and found["silent"] == ["b"]
    assert not found["changed"]
    refused = played["nobody waited"]
    assert refused["failed"] and "n1, n2 lack the fact other_waits" in refused["msg"]


def test_every_engine_must_have_answered(played: Any) -> None:
    evidence = played["all answered"]["evidence"]
    assert evidence["gate"] == "serve"
    assert evidence["summary"] == ('a at http://10.0.0.1:8000/v1: "Which city?" - "It is Paris."')
    (engine,) = evidence["values"]["engines"]
    assert engine["served_name"] == "m-a" and engine["api_key_file"] == "/state/api_key"
    assert engine["max_num_seqs"] == 112
    failed = played["one was not asked"]
    assert failed["failed"] and failed["msg"] == "no answer was asked of b"
    assert (failed["found"], failed["where"]) == ("answers from a", "b")
    assert "evidence" not in failed


def test_how_long_an_engine_loaded_is_kept_beside_what_was_expected(played: Any) -> None:
    (engine,) = played["one was loaded"]["evidence"]["values"]["engines"]
    assert engine["loading"] == {
        "expected_seconds": 28.0,
        "seconds": 31.5,
        "hosts": {"n1": {"bytes": 7}},
        "advice": [],
    }
    # What ran already was not loaded.
    (engine,) = played["all answered"]["evidence"]["values"]["engines"]
    assert "loading" not in engine


def test_every_data_rank_must_have_answered(played: Any) -> None:
    evidence = played["all ranks answered"]["evidence"]
    where = "http://10.0.0.1:20020/v1, http://10.0.0.1:20021/v1"
    assert evidence["summary"].startswith(f'a at 2 ranks ({where}): "Which city?"')
    (engine,) = evidence["values"]["engines"]
    assert [one["rank"] for one in engine["ranks"]] == [0, 1]
    failed = played["a rank was idle"]
    assert failed["failed"] and failed["msg"] == "no answer was asked of a rank 1"
    assert "evidence" not in failed


def test_an_engine_that_passes_over_the_attention_backend_it_was_asked_for_is_told_of(
    played: Any,
) -> None:
    (engine,) = played["another attention"]["evidence"]["values"]["engines"]
    assert engine["attention"]["used"] == ["CPU_MLA"]
    (told,) = engine["attention"]["misses"]
    assert told == "vLLM was asked for the attention backend FLASHMLA and uses CPU_MLA"


def test_what_a_start_took_its_time_for_is_kept_where_there_was_one(played: Any) -> None:
    (engine,) = played["started in this run"]["evidence"]["values"]["engines"]
    assert engine["start_seconds"] == STARTED["start"]
    (engine,) = played["all answered"]["evidence"]["values"]["engines"]
    assert "start_seconds" not in engine


def test_thoughts_stand_where_the_answer_is_still_to_come(played: Any) -> None:
    evidence = played["thoughts alone"]["evidence"]
    told = evidence["summary"].partition('"Which city?" - ')[2]
    assert told.startswith('it thinks "Let me think. ') and told.endswith('..."')
    assert evidence["values"]["engines"][0]["reasoning"].startswith("Let me think.")


def test_a_router_is_the_endpoint_and_its_ranks_are_still_told(played: Any) -> None:
    evidence = played["a router stands"]["evidence"]
    (engine,) = evidence["values"]["engines"]
    assert engine["endpoint"] == "http://10.0.0.1:8000/v1"
    assert engine["router"] is True and engine["ranks"] == RANKS
    assert "a at http://10.0.0.1:8000/v1 before 2 ranks (" in evidence["summary"]


def test_the_address_of_a_set_stands_before_no_ranks_of_its_own(played: Any) -> None:
    summary = played["a set is asked at its address"]["evidence"]["summary"]
    assert summary.startswith('a at http://10.0.0.1:8000/v1: "Which city?"')


def test_an_empty_answer_is_an_answer_and_check_mode_has_none(played: Any) -> None:
    assert played["an empty answer"]["evidence"]["values"]["engines"][0]["answer"] == ""
    skipped = played["nothing was asked"]
    assert skipped["skipped"] and "evidence" not in skipped


def test_the_first_failing_line_is_named_with_its_rank(played: Any) -> None:
    failed = played["the line"]
    assert failed["failed"] and "CUDA out of memory" in failed["found"]
    assert failed["rank"] == "n2 b-serve" and failed["stage"] == "serve"
    assert failed["msg"] == ("No answer from b: b-serve ended with exit status 1 while loading")
    assert failed["signature"] and failed["cause"] and failed["fix"]


def test_every_engine_has_a_diagnosis_of_its_own_logs(played: Any) -> None:
    assert "CUDA out of memory" in played["of b"]["found"]
    first, second = played["each"]["results"]
    assert "no such model" in first["found"] and first["msg"].startswith("No answer from a")
    assert "CUDA out of memory" in second["found"]
    assert [one.msg for one in outcome.failures(played["each"])] == [first["msg"], second["msg"]]


def test_without_a_failing_line_what_the_wait_found_is_said(played: Any) -> None:
    assert played["no line"]["found"] == played["check mode"]["found"] == SILENT["found"]
    assert played["no log"]["failed"] and played["no log"]["found"] == "no log at all"
    assert not played["all is well"].get("failed")


def test_a_diagnosis_needs_a_title_and_logs_it_can_read(played: Any) -> None:
    assert "expected a `title`" in played["no title"]["msg"]
    assert "expected `logs` as {host: {process: text}}" in played["no logs"]["msg"]


def test_collected_logs_lie_with_the_record_and_without_secrets(played: Any, run_dir: Path) -> None:
    logs = run_dir / "logs"
    assert {path.name for path in logs.iterdir()} >= {"n1-a-serve.log", "n2-b-serve.log"}
    kept = (logs / "n2-b-serve.log").read_text()
    assert "CUDA out of memory" in kept and "k-123456789" not in kept
    assert logs.stat().st_mode & 0o077 == 0


def test_causes_are_held_against_what_the_gates_of_the_run_have_found(played: Any) -> None:
    failed = played["beside the evidence"]
    assert failed["cause"].startswith("The process sees none of the 8 GPUs of n1")
    assert failed["excluded"].endswith("The driver of n1 answers with 8 devices (preflight)")
