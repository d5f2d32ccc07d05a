"""The names that `verify_accept` takes: a check of any part, everywhere or at one place."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.problem import PlanError, Problem, close_match
from vllm_ansible.verify.preflight.judge import CHECKS
from vllm_ansible.verify.reach.verdict import CHECKS as REACH

MEASURED = (
    *("results", "bandwidth", "links", "cards", "resent"),
    *("computes", "memory_rate", "host_link", "peers", "copies", "kernel_log"),
)
KNOWN = frozenset((*MEASURED, *REACH, *(check.id for check in CHECKS)))


def accepted(names: Sequence[str]) -> list[str]:
    """Return the names; raise PlanError for one that no check has, which would accept nothing."""
    for name in names:
        check = name.partition("@")[0]
        if check not in KNOWN:
            raise PlanError(
                Problem(
                    f"verify_accept names {check!r}, and no check is called so",
                    expected=f"one of {', '.join(sorted(KNOWN))}, each with @place or without",
                    found=name,
                    where="verify_accept",
                    fix=close_match(check, KNOWN) or "see docs/verify.md for the names",
                )
            )
    return list(names)
