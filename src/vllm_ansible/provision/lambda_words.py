"""What a person is told when Lambda refuses, or says nothing."""

from __future__ import annotations

from typing import Any

from .lambda_api import BAD_KEY, CROWDED, QUOTA, ApiError
from .transport import Unreachable

FIXES = {
    BAD_KEY: "make a key in Lambda's console and put it into the file of lambda_api_key_file",
    CROWDED: "stop what else uses this key, then run the same command again",
    QUOTA: "ask Lambda for a larger quota, or lower node_count and spare_count",
}


def words(error: Exception) -> dict[str, Any]:
    """Return the result of a task that met one of the API's errors."""
    if isinstance(error, ApiError):
        return refusal(error)
    assert isinstance(error, Unreachable)  # noqa: S101  there are two kinds
    return silence(error)


def refusal(error: ApiError) -> dict[str, Any]:
    """Return the result of a task that Lambda refused something."""
    return {
        "msg": f"Lambda refused: {error.message}",
        "found": f"{error.code} (status {error.status})",
        "fix": FIXES.get(error.code) or error.suggestion or "correct the inventory",
    }


def silence(failure: Unreachable) -> dict[str, Any]:
    """Return the result of a task that Lambda gave no answer to."""
    return {
        "msg": "Lambda's API gives no answer",
        "expected": "an answer within a minute",
        "found": str(failure),
        "fix": "run the same command again: what was launched is known by its tags",
    }
