"""What callbacks get of a loop, as ansible-core 2.19.14 and 2.21.5 gave it to one of ours."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.outcome import failures

NO_TRACE = "(traceback unavailable)"
OF_2_19 = [
    {"failed": True, "msg": "bad 1", "changed": False, "exception": NO_TRACE, "item": 1},
    {"failed": False, "msg": "value 2", "changed": False, "failed_when_result": False, "item": 2},
    {"changed": False, "skipped": True, "skip_reason": "Conditional result was False", "item": 3},
    {"unreachable": True, "msg": "gone", "changed": False, "item": 4},
]
# An item says neither `failed` nor `skipped` any more.
OF_2_21 = [
    {"changed": False, "exception": NO_TRACE, "msg": "bad 1", "item": 1},
    {"changed": False, "msg": "value 2", "failed_when_result": False, "item": 2},
    {"changed": False, "skip_reason": "Conditional result was False", "item": 3},
    {"unreachable": True, "changed": False, "msg": "gone", "item": 4},
]


@pytest.mark.parametrize("items", [OF_2_19, OF_2_21], ids=["2.19.14", "2.21.5"])
def test_the_items_that_failed_speak_for_their_loop(items: list[dict[str, Any]]) -> None:
    result = {"changed": False, "msg": "One or more items failed", "results": items}
    assert [found.msg for found in failures(result)] == ["bad 1", "gone"]


@pytest.mark.parametrize(
    "words", ["non-zero return code", "The command exited with a non-zero return code."]
)
def test_what_a_command_said_last_says_more_than_its_exit_status(words: str) -> None:
    (found,) = failures({"msg": words, "rc": 2, "stderr": "ls: no such file\n", "stdout": ""})
    assert found.msg == "ls: no such file (exit status 2)"


def test_a_known_failure_is_shown_with_the_threads_of_others() -> None:
    (found,) = failures({"msg": "RuntimeError: Could not find nvcc", "failed": True})
    assert found.seen == "Gym#1405, vllm#21960, flashinfer#1919"
    (own,) = failures({"msg": "RuntimeError: Could not find nvcc", "cause": "mine", "failed": True})
    assert own.seen is None


@pytest.mark.parametrize(
    ("words", "certain"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", True),
        ("write error: No space left on device", False),
        ("first line\nOSError: [Errno 28] No space left on device\nlast line", False),
        # What only hands on names no cause that could be certain.
        ("ErrImagePull", True),
    ],
)
def test_a_cause_that_is_only_the_usual_one_says_so(words: str, certain: bool) -> None:
    (found,) = failures({"msg": words, "failed": True})
    assert found.cause
    assert found.cause.startswith(USUAL) is not certain
