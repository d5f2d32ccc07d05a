"""What a wait saw and what the logs say become one answer."""

from __future__ import annotations

import pytest

from vllm_ansible.record.diagnosis.verdict import diagnose, texts

DEATH = "ERROR 11-20 10:31:02 [x.py:1] OSError: [Errno 98] Address already in use"
VERDICT = {
    "ready": False,
    "expected": "an answer within the bound",
    "found": "the process has ended",
    "fix": "read the log",
    "command": "vllm serve m",
}


def test_the_line_the_cause_and_the_command_are_all_there() -> None:
    result = diagnose("The engine m did not start", {"a m-serve": DEATH}, VERDICT, "serve")
    assert result["failed"]
    assert result["msg"] == "The engine m did not start: the process has ended"
    assert result["found"] == "OSError: [Errno 98] Address already in use"
    assert result["where"] == "a m-serve, line 1 of its log"
    assert result["signature"] == "port-taken"
    assert "already listens" in result["cause"]
    assert result["command"] == "vllm serve m"
    assert result["expected"] == "an answer within the bound"


def test_a_wrong_answer_is_not_explained_by_how_its_server_was_stopped() -> None:
    """A rank with scaled weights on an H200: the log ended with what the stop had made of it."""
    stopped = "(APIServer pid=9) ERROR 11-26 10:39:40 [a.py:1] AsyncLLM output_handler failed."
    answered = {
        "ready": False,
        "wrong": True,
        "expected": "a correct completion from one rank 1",
        "found": "the answer does not contain 'Paris': 'la capital'",
        "fix": "read the log",
    }
    result = diagnose("No answer from one", {"here one-serve-0": stopped}, answered, "serve")
    assert result["found"] == answered["found"]
    assert result["expected"] == answered["expected"]
    assert "where" not in result and "cause" not in result


def test_without_a_failing_line_the_verdict_speaks() -> None:
    result = diagnose("It did not start", {"a": "INFO all is well"}, VERDICT)
    assert (result["found"], result["fix"]) == ("the process has ended", "read the log")
    assert "signature" not in result


def test_silence_is_explained_by_the_last_lines() -> None:
    log = "INFO Waiting for creating a placement group of specs for 40 seconds. specs=[]"
    result = diagnose("It did not start", {"a": log}, {"found": "silent for 60 s"})
    assert result["signature"] == "pg-wait"
    assert result["found"] == "silent for 60 s"


def test_an_empty_log_is_named() -> None:
    assert diagnose("It did not start", {"a": "x", "b": ""}, {})["found"] == (
        "nothing in the log of b"
    )
    assert diagnose("It did not start", {}, {})["found"] == "no log at all"


def test_a_verdict_that_says_ready_is_no_failure() -> None:
    assert not diagnose("It did not start", {"a": DEATH}, {"ready": True})["failed"]


def test_logs_come_as_mappings_or_lists() -> None:
    wanted = {"a p": "one\ntwo"}
    assert texts({"a": {"p": "one\ntwo"}}) == wanted
    assert texts({"a": {"p": ["one", "two"]}}) == wanted
    assert texts([{"host": "a", "process": "p", "text": "one\ntwo"}]) == wanted
    assert texts({"a p": "one\ntwo"}) == wanted
    with pytest.raises(TypeError, match="found int"):
        texts(3)


def test_a_rank_of_another_host_that_is_stopped_is_the_cause_of_a_silent_start() -> None:
    held = "ray::RayWorkerProc, process 811 of chat-ray, is stopped (state T); kill -CONT 811 lets"
    logs = {"n1 chat-serve": "INFO 11-26 10:00:00 [x.py:1] Starting to load model m...\n"}
    found = diagnose("t", {**logs, "n2 chat-stopped": f"{held} it go on\n"}, {"found": "quiet"})
    assert found["signature"] == "process-stopped" and found["rank"] == "n2 chat-stopped"
