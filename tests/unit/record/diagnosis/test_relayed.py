"""What a launcher passes on of another program is read as that program wrote it."""

from __future__ import annotations

import pytest

from vllm_ansible.record.diagnosis import page
from vllm_ansible.record.diagnosis.relayed import as_written
from vllm_ansible.record.diagnosis.verdict import diagnose

INNER = """Traceback (most recent call last):
  File "/backends/vllm/backend.py", line 22, in <module>
    from vllm.transformers_utils.tokenizer import get_tokenizer
ModuleNotFoundError: No module named 'vllm.transformers_utils.tokenizer'
"""


@pytest.mark.parametrize(
    "prefix",
    [
        "6:31PM DBG GRPC(model-127.0.0.1:{}): stderr ",
        "2026-06-27 12:57:51,{} - __main__ - INFO - ",
        "launcher <worker {}> err> ",
    ],
)
def test_a_traceback_behind_any_prefix_is_read(prefix: str) -> None:
    log = "".join(
        prefix.format(41230 + number) + line
        for number, line in enumerate(INNER.splitlines(keepends=True))
    )
    assert as_written(log) == INNER
    assert "another release" in diagnose("x", {"a": log}, {})["cause"]
    assert "another release" in page.explain({"a": log})["cause"]


@pytest.mark.parametrize(
    "log",
    [
        # No frame carries it.
        "DEBUG 11-20 10:31:02 [a.py:1] Traceback (most recent call last):\n"
        '  File "/a.py", line 1, in f\n',
        # Its form is known.
        "".join(f"(EngineCore pid=7) {line}\n" for line in INNER.splitlines()),
        INNER,
    ],
)
def test_a_log_that_nobody_passed_on_stays_as_it_is(log: str) -> None:
    assert as_written(log) == log
