"""Read what an inventory says about rented machines: typed, limited, and with all that is wrong."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from vllm_ansible.problem import PlanError, Problem, close_match

# Variable, field, type and whether it has to be there.
Field = tuple[str, str, "type | tuple[type, ...]", bool]
CLUSTER = re.compile(r"[a-z][a-z0-9-]{0,15}")
# A tag's value is no longer than this.
OWNER = re.compile(r"[\w.@:+-]{0,128}")
# Limits, each with its field and what one of its units is there; 0 is no limit.
LIMITS = {
    "max_usd_per_hour": ("max_cents_per_hour", 100),
    "max_cost": ("max_cents", 100),
    "max_hours": ("max_seconds", 3600),
}
EXPECTED = {
    "cluster_name": "a small letter, then at most 15 small letters, digits or dashes",
    "node_count": "a whole number",
    "spare_count": "a whole number",
    "max_usd_per_hour": "a number of US dollars, 0 for no limit",
    "max_cost": "a number of US dollars, 0 for no limit",
    "max_hours": "a number of hours, 0 for no limit",
}


class Reading:
    """One reading of an inventory's variables, and what was wrong with them."""

    def __init__(
        self, variables: Mapping[str, Any], where: str, expected: Mapping[str, str]
    ) -> None:
        self._variables, self._where = variables, where
        self._expected = {**EXPECTED, **expected}
        self.problems: list[Problem] = []
        self.found: dict[str, Any] = {}

    def read(self, fields: Sequence[Field]) -> None:
        """Read each field."""
        known = {variable for variable, _, _, _ in fields}
        for variable, name, kind, required in fields:
            value = self._variables.get(variable)
            if value is None or (required and value == ""):
                if required:
                    self._miss(variable, known)
                continue
            value = _given(value, kind)
            # A boolean is a number to Python and none to a person.
            unfit = isinstance(value, bool) and kind is not bool
            # Nor is .nan, or .inf, a number of seconds.
            unfit = unfit or (isinstance(value, float) and not 0 <= value < inf)
            if unfit or not isinstance(value, kind):
                self.wrong(variable, value)
                continue
            self.found[name] = value

    def limit(self) -> None:
        """Read the limits."""
        for variable, (name, unit) in LIMITS.items():
            limit = _given(self._variables.get(variable) or 0, (int, float))
            number = not isinstance(limit, bool) and isinstance(limit, (int, float))
            if not number or not 0 <= limit < inf:
                self.wrong(variable, limit)
            elif limit:
                self.found[name] = round(limit * unit)

    def common(self, owner: str) -> None:
        """Judge what every provider's machines have: a name, counts, and whose they are."""
        cluster = self.found.get("cluster")
        if cluster is not None and not CLUSTER.fullmatch(cluster):
            self.wrong("cluster_name", cluster)
        for variable, name, least in (("node_count", "count", 1), ("spare_count", "spares", 0)):
            if self.found.get(name, least) < least:
                self.refuse(
                    f"{variable} is {self.found[name]}",
                    f"{least} or more",
                    str(self.found[name]),
                    "correct it",
                )
        if not OWNER.fullmatch(self.found.get("owner", "")):
            self.wrong(owner, self.found["owner"])

    def not_empty(self, **variables: str) -> None:
        """Refuse lists without an entry; each field with its variable."""
        for name, variable in variables.items():
            if name in self.found and not self.found[name]:
                fix = f"name at least one, in order of preference: {variable}: [...]"
                self.refuse(f"{variable} is empty", "a list", "[]", fix)

    def wrong(self, variable: str, value: Any) -> None:
        """Refuse a value."""
        expected = self._expected.get(variable, "a text")
        self.refuse(f"{variable} is {value!r}", expected, repr(value), "correct it")

    def refuse(self, message: str, expected: str, found: str, fix: str) -> None:
        """Refuse, whatever it is."""
        self.problems.append(Problem(message, expected, found, self._where, fix))

    def done(self) -> dict[str, Any]:
        """Return what was read; raise PlanError with all that is wrong."""
        if self.problems:
            raise PlanError(self.problems)
        return self.found

    def _miss(self, variable: str, known: set[str]) -> None:
        near = close_match(variable, [name for name in self._variables if name not in known])
        self.refuse(f"{variable} is not set", "a value", "nothing", near or f"set {variable}")


def path(text: str) -> Path:
    """Return a path that means the same from any directory: whoever watches is elsewhere."""
    return Path(text).expanduser().absolute()


def read_key(path: Path, title: str, variable: str) -> str:
    """Return the API key in a file that nobody else may read; raise PlanError."""
    problem = None
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text().strip()
    except OSError as error:
        found = error.strerror or str(error)
        problem = ("a file with the API key", found, f"put the key into {path}, mode 0600")
    else:
        if mode & 0o077:
            expected = "a file that its owner alone may read"
            problem = (expected, f"mode {mode:04o}", f"chmod 600 {path}")
        elif not text or re.search(r"\s", text):
            fix = f"put the key, and nothing else, into {path}"
            problem = ("one key, alone in its file", "several words" if text else "nothing", fix)
    if problem:
        expected, found, fix = problem
        message = f"the key of {title}'s API cannot be taken from {path}"
        raise PlanError(Problem(message, expected, found, variable, fix))
    return text


def _given(value: Any, kind: type | tuple[type, ...]) -> Any:
    """Return a number or truth that was given as text, as all is that comes with -e."""
    if isinstance(value, str) and kind is bool:
        return {"true": True, "false": False}.get(value.lower(), value)
    if not isinstance(value, str) or kind not in (int, (int, float)):
        return value
    try:
        return int(value) if kind is int else float(value)
    except ValueError:
        return value
