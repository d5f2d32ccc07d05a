"""What a person is told when RunPod refuses, or gives no answer."""

from __future__ import annotations

from typing import Any

from .runpod_api import (
    BAD_KEY,
    CROWDED,
    FORBIDDEN,
    NO_BALANCE,
    UNFIT,
    ApiError,
    SpendLimit,
)
from .transport import Unreachable

FIXES = {
    BAD_KEY: "create a key in RunPod's console and put it into the file of runpod_api_key_file",
    NO_BALANCE: "add credit to the RunPod account, then run the same command again",
    FORBIDDEN: "give the key read and write access to pods, clusters and network volumes in "
    "RunPod's console, or name other runpod_instance_types: the account may not use this one",
    UNFIT: "correct the variable that the refusal names; the same request is refused again",
    CROWDED: "stop what else uses this key, then run the same command again",
}
LIMIT = (
    "an account's spend limit looks like this: compare it in RunPod's console with what its pods "
    "cost, have it raised, and set runpod_spend_limit to it"
)


def words(error: Exception) -> dict[str, Any]:
    """Return the result of a task that met one of the API's errors."""
    if isinstance(error, ApiError):
        return refusal(error)
    assert isinstance(error, Unreachable)  # noqa: S101  there are two kinds
    return {
        "msg": "RunPod's API gives no answer",
        "expected": "an answer within a minute",
        "found": str(error),
        "fix": "check DNS and the route to the API, then run the same command again; a cluster "
        "that was launched is found by its name, and none is launched twice",
    }


def refusal(error: ApiError) -> dict[str, Any]:
    """Return the result of a task that RunPod refused something."""
    found = f"{error.title} (status {error.status})"
    if error.errors:
        found += f": {'; '.join(error.errors)}"
    fix = LIMIT if isinstance(error, SpendLimit) else FIXES.get(error.status)
    return {
        "msg": f"RunPod refused: {error.detail}",
        "found": found,
        "fix": fix or "correct the inventory: RunPod names no code, and its words say what it is",
    }
