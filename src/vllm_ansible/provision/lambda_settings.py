"""What an inventory says about machines at Lambda, checked before anything is asked or rented."""

from __future__ import annotations

import ipaddress
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from vllm_ansible.planner.problem import PlanError, Problem, close_match
from vllm_ansible.provision.cluster import owner
from vllm_ansible.provision.lambda_api import ENDPOINT, INTERVALS, is_safe

# The API's own bound: the name of a machine is its cluster and slot.
CLUSTER = re.compile(r"[a-z][a-z0-9-]{0,15}")
# A tag's value is no longer than this.
OWNER = re.compile(r"[\w.@:+-]{0,128}")
TYPE = re.compile(r"gpu_(\d+)x_([a-z0-9]+)(_[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Settings:
    """The machines of one cluster: prices in US cents an hour, times in seconds."""

    cluster: str
    key_file: Path
    ssh_key: str
    types: tuple[str, ...]
    regions: tuple[str, ...]
    count: int
    spares: int = 0
    file_system: str = ""
    # Networks from which machines may be reached over SSH.
    ssh_from: tuple[str, ...] = ("0.0.0.0/0",)
    # Work on machines that somebody else has rented under this cluster's name.
    adopt: bool = False
    # Who rents, as tags say it; empty for the user and name of this machine.
    owner: str = ""
    # What all machines may cost together, and for how long they may be rented; None is no limit.
    max_cents_per_hour: int | None = None
    max_cents: int | None = None
    max_seconds: float | None = None
    endpoint: str = ENDPOINT
    request_seconds: float = INTERVALS["request"]
    launch_seconds: float = INTERVALS["launch"]

    @property
    def intervals(self) -> dict[str, float]:
        """Seconds between two turns of a kind."""
        return {"request": self.request_seconds, "launch": self.launch_seconds}

    def pinned(self) -> dict[str, str]:
        """Return what means the same from any directory, and from any process of this user."""
        return {"lambda_api_key_file": str(self.key_file), "lambda_owner": self.owner or owner()}

    def ready(self) -> None:
        """Raise PlanError where the key cannot be read."""
        self.key()

    def key(self) -> str:
        """Return the API key; it never leaves the process but in a header."""
        return read_key(self.key_file)


# Variable, field, type and whether it has to be there.
FIELDS: tuple[tuple[str, str, type | tuple[type, ...], bool], ...] = (
    ("cluster_name", "cluster", str, True),
    ("lambda_api_key_file", "key_file", str, True),
    ("lambda_ssh_key_name", "ssh_key", str, True),
    ("lambda_instance_types", "types", list, True),
    ("lambda_regions", "regions", list, True),
    ("node_count", "count", int, True),
    ("spare_count", "spares", int, False),
    ("lambda_filesystem", "file_system", str, False),
    ("lambda_ssh_from", "ssh_from", list, False),
    ("lambda_adopt", "adopt", bool, False),
    ("lambda_owner", "owner", str, False),
    ("lambda_endpoint", "endpoint", str, False),
    ("lambda_request_seconds", "request_seconds", (int, float), False),
    ("lambda_launch_seconds", "launch_seconds", (int, float), False),
)


# Limits, each with its field and what one of its units is there; 0 is no limit.
LIMITS = {
    "max_usd_per_hour": ("max_cents_per_hour", 100),
    "max_cost": ("max_cents", 100),
    "max_hours": ("max_seconds", 3600),
}
# All that an inventory says about machines at Lambda.
READ = (*(variable for variable, _, _, _ in FIELDS), *LIMITS)


def settings(variables: Mapping[str, Any], where: str) -> Settings:
    """Return the settings of an inventory; raise PlanError with all that is wrong with them."""
    problems = []
    found: dict[str, Any] = {}
    for variable, name, kind, required in FIELDS:
        value = variables.get(variable)
        if value is None or (required and value == ""):
            if required:
                problems.append(_missing(variable, variables, where))
            continue
        value = _given(value, kind)
        # A boolean is a number to Python and none to a person.
        unfit = isinstance(value, bool) and kind is not bool
        # Nor is .nan, or .inf, a number of seconds.
        unfit = unfit or (isinstance(value, float) and not 0 <= value < inf)
        if unfit or not isinstance(value, kind):
            problems.append(_wrong(variable, value, where))
            continue
        found[name] = value
    problems += _refused(found, where)
    for variable, (name, unit) in LIMITS.items():
        limit = _given(variables.get(variable) or 0, (int, float))
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < inf:
            problems.append(_wrong(variable, limit, where))
        elif limit:
            found[name] = round(limit * unit)
    if problems:
        raise PlanError(problems)
    # Whoever watches the limits does so from elsewhere.
    found["key_file"] = Path(found["key_file"]).expanduser().absolute()
    for name in ("types", "regions", "ssh_from"):
        if name in found:
            found[name] = tuple(map(str, found[name]))
    return Settings(**found)


def read_key(path: Path) -> str:
    """Return the key in a file that nobody else may read."""
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
        message = f"the key of Lambda's API cannot be taken from {path}"
        raise PlanError(Problem(message, expected, found, "lambda_api_key_file", fix))
    return text


def devices_of(instance_type: str) -> tuple[int, str] | None:
    """Return number and model of a type's accelerators by its name, such as gpu_8x_h100_sxm5."""
    match = TYPE.fullmatch(instance_type)
    return (int(match[1]), match[2].upper()) if match else None


def _refused(found: Mapping[str, Any], where: str) -> list[Problem]:
    problems = []
    cluster = found.get("cluster")
    if cluster is not None and not CLUSTER.fullmatch(cluster):
        problems.append(_wrong("cluster_name", cluster, where))
    for variable, name, least in (("node_count", "count", 1), ("spare_count", "spares", 0)):
        if found.get(name, least) < least:
            expected = f"{least} or more"
            message = f"{variable} is {found[name]}"
            problems.append(Problem(message, expected, str(found[name]), where, "correct it"))
    if not OWNER.fullmatch(found.get("owner", "")):
        problems.append(_wrong("lambda_owner", found["owner"], where))
    if not is_safe(found.get("endpoint", ENDPOINT)):
        problems.append(_wrong("lambda_endpoint", found["endpoint"], where))
    problems += [
        _wrong("lambda_ssh_from", one, where)
        for one in found.get("ssh_from", ())
        if not _is_network(one)
    ]
    for variable, name in (("lambda_instance_types", "types"), ("lambda_regions", "regions")):
        if name in found and not found[name]:
            fix = f"name at least one, in order of preference: {variable}: [...]"
            problems.append(Problem(f"{variable} is empty", "a list", "[]", where, fix))
    return problems


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


def _is_network(text: Any) -> bool:
    try:
        ipaddress.IPv4Network(str(text))
    except ValueError:
        return False
    return True


def _missing(variable: str, variables: Mapping[str, Any], where: str) -> Problem:
    near = close_match(variable, [name for name in variables if name not in _KNOWN])
    return Problem(f"{variable} is not set", "a value", "nothing", where, near or f"set {variable}")


def _wrong(variable: str, value: Any, where: str) -> Problem:
    expected = _EXPECTED.get(variable, "a text")
    return Problem(f"{variable} is {value!r}", expected, repr(value), where, "correct it")


_KNOWN = {variable for variable, _, _, _ in FIELDS}
_EXPECTED = {
    "cluster_name": "a small letter, then at most 15 small letters, digits or dashes",
    "lambda_instance_types": "a list of types, in order of preference",
    "lambda_regions": "a list of regions, in order of preference",
    "lambda_endpoint": "https only, for the key goes there",
    "lambda_ssh_from": "a list of networks, such as 198.51.100.0/24",
    "lambda_adopt": "true or false",
    "lambda_owner": "at most 128 letters, digits and . @ : + _ -, such as team-a",
    "node_count": "a whole number",
    "spare_count": "a whole number",
    "lambda_request_seconds": "a number of seconds",
    "lambda_launch_seconds": "a number of seconds",
    "max_usd_per_hour": "a number of US dollars, 0 for no limit",
    "max_cost": "a number of US dollars, 0 for no limit",
    "max_hours": "a number of hours, 0 for no limit",
}
