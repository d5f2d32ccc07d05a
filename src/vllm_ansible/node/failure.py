"""What node code raises where a person has to mend something."""

from __future__ import annotations

import pwd
from typing import Any


class Failure(Exception):
    """Something could not be done; details are expected, found, where and fix, as modules fail."""

    def __init__(self, msg: str, **details: Any) -> None:
        super().__init__(msg)
        self.details = details


def expect_user(user: str, failure: type[Failure]) -> None:
    """Raise this failure where there is no such user yet, as whom work is to be done."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise failure(
            f"there is no user {user}, who engines run as",
            expected=f"the user {user} on this host",
            found="no such user",
            where="the users of this host",
            fix="run the stage prepare first (--tags prepare), or all of site.yml",
        ) from None
