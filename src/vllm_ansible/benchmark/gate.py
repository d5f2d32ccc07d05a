"""The gate of the stage benchmark: every request was answered with tokens."""

from __future__ import annotations

from typing import Any

from vllm_ansible.benchmark.verdict import verdict
from vllm_ansible.gate import Case


def judge(case: Case) -> dict[str, Any]:
    """Return the evidence, or say which engine was not measured.

    of: the plan. of_each_host: looks, what M(engine_benchmark) found measured.
    """
    return verdict(case.of["plan"].get("engines", []), case.each("looks"), case.check_mode)
