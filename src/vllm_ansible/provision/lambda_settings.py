"""What an inventory says about machines at Lambda, checked before anything is asked or rented."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ansible.provision import fields
from vllm_ansible.provision.cluster import owner
from vllm_ansible.provision.lambda_api import ENDPOINT, INTERVALS
from vllm_ansible.provision.transport import is_safe

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
        return fields.read_key(self.key_file, "Lambda", "lambda_api_key_file")


# Variable, field, type and whether it has to be there.
FIELDS: tuple[fields.Field, ...] = (
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


# All that an inventory says about machines at Lambda.
READ = (*(variable for variable, _, _, _ in FIELDS), *fields.LIMITS)


def settings(variables: Mapping[str, Any], where: str) -> Settings:
    """Return the settings of an inventory; raise PlanError with all that is wrong with them."""
    reading = fields.Reading(variables, where, _EXPECTED)
    reading.read(FIELDS)
    reading.common("lambda_owner")
    endpoint = reading.found.get("endpoint", ENDPOINT)
    if not is_safe(endpoint):
        reading.wrong("lambda_endpoint", endpoint)
    for one in reading.found.get("ssh_from", ()):
        if not _is_network(one):
            reading.wrong("lambda_ssh_from", one)
    reading.not_empty(types="lambda_instance_types", regions="lambda_regions")
    reading.limit()
    found = reading.done()
    found["key_file"] = fields.path(found["key_file"])
    for name in ("types", "regions", "ssh_from"):
        if name in found:
            found[name] = tuple(map(str, found[name]))
    return Settings(**found)


def devices_of(instance_type: str) -> tuple[int, str] | None:
    """Return number and model of a type's accelerators by its name, such as gpu_8x_h100_sxm5."""
    match = TYPE.fullmatch(instance_type)
    if not match:
        return None
    model = match[2].upper()
    # An A100 has 80 GB where the type says so.
    if model == "A100" and "80gb" not in instance_type:
        model = "A100-40"
    return int(match[1]), model


def _is_network(text: Any) -> bool:
    try:
        ipaddress.IPv4Network(str(text))
    except ValueError:
        return False
    return True


_EXPECTED = {
    "lambda_instance_types": "a list of types, in order of preference",
    "lambda_regions": "a list of regions, in order of preference",
    "lambda_endpoint": "https only, for the key goes there",
    "lambda_ssh_from": "a list of networks, such as 198.51.100.0/24",
    "lambda_adopt": "true or false",
    "lambda_owner": "at most 128 letters, digits and . @ : + _ -, such as team-a",
    "lambda_request_seconds": "a number of seconds",
    "lambda_launch_seconds": "a number of seconds",
}
