"""What node code raises where a person has to mend something."""

from __future__ import annotations

from typing import Any


class Failure(Exception):
    """Something could not be done; details are expected, found, where and fix, as modules fail."""

    def __init__(self, msg: str, **details: Any) -> None:
        super().__init__(msg)
        self.details = details
