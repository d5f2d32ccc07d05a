"""The gate of the role wheels: each host has what it needs, equal where the key is equal."""

from __future__ import annotations

from typing import Any

from vllm_ansible.gate import Case
from vllm_ansible.problem import as_result
from vllm_ansible.wheels.evidence import told, verdict


def judge(case: Case) -> dict[str, Any]:
    """Return the evidence, or say which host lacks or differs in what.

    of: shares, what M(wheel_shares) returned. of_each_host: looks, what M(engine_wheels) found.
    """
    looks = case.each("looks")
    problems = verdict(looks)
    if problems and case.check_mode:
        return {"skipped": True, "skip_reason": problems[0].message}
    if problems:
        return {"failed": True, **as_result(problems)}
    return {"changed": False, "evidence": {"gate": "wheels", **told(looks, case.of["shares"])}}
