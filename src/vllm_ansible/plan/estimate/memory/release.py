"""Engine versions, and what changed between them."""

from __future__ import annotations

import re

from vllm_ansible.problem import PlanError, Problem

Release = tuple[int, int, int]
NEWEST: Release = (0, 32, 0)


def release(version: str | None) -> Release:
    """Return major, minor and patch of `v0.11.2rc1+rhai0` and the like; the newest for None."""
    if version is None:
        return NEWEST
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", version)
    if found is None:
        raise PlanError(
            Problem(
                f"{version[:40]!r} is no version of vLLM",
                "three numbers such as 0.32.0",
                version[:40],
                fix="correct the version",
            )
        )
    return int(found[1]), int(found[2]), int(found[3] or 0)
