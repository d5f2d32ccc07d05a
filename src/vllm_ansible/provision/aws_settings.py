"""What an inventory says about machines at AWS, checked before anything is asked or rented."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vllm_ansible.problem import PlanError, Problem

from .cluster import owner

ON_DEMAND, SPOT = "on_demand", "spot"
RESERVATION, BLOCK = "capacity_reservation", "capacity_block"
MARKETS = (ON_DEMAND, SPOT, RESERVATION, BLOCK)
# The group is made where it is of use, or there is none; else the variable names one that exists.
AUTO, NONE = "auto", "none"
PRIVATE = "PRIVATE KEY"


@dataclass(frozen=True, slots=True)
class Settings:
    """The machines of one cluster: prices in US cents an hour, times in seconds."""

    cluster: str
    region: str
    zones: tuple[str, ...]
    types: tuple[str, ...]
    # Id of an image, or the name of a parameter of Systems Manager that holds one.
    image: str
    count: int
    spares: int = 0
    # One for each zone that is used; none are the default ones.
    subnets: tuple[str, ...] = ()
    market: str = ON_DEMAND
    reservation: str = ""
    # The name of a key pair that AWS has, or a file with a public key that it is given.
    ssh_key: str = ""
    public_key_file: Path | None = None
    # One that exists; empty for one of the cluster's own.
    security_group: str = ""
    ssh_from: tuple[str, ...] = ()
    placement_group: str = AUTO
    public_address: bool = False
    instance_profile: str = ""
    root_gib: int = 200
    # Of one machine, by its type; a type without one has no price that anybody knows.
    prices: Mapping[str, int] = field(default_factory=dict)
    # Of the user's AWS configuration; empty for what the environment says.
    profile: str = ""
    # Work on machines that somebody else has rented under this cluster's name.
    adopt: bool = False
    # Who rents, as tags say it; empty for the user and name of this machine.
    owner: str = ""
    # What all machines may cost together, and for how long they may be rented; None is no limit.
    max_cents_per_hour: int | None = None
    max_cents: int | None = None
    max_seconds: float | None = None
    privileges: str = ""

    def pinned(self) -> dict[str, str]:
        """Return what means the same from any directory, and from any process of this user."""
        kept = {"aws_owner": self.owner or owner()}
        if profile := self.profile or os.environ.get("AWS_PROFILE", ""):
            kept["aws_profile"] = profile
        if self.public_key_file:
            kept["aws_ssh_public_key_file"] = str(self.public_key_file)
        return kept

    def ready(self) -> None:
        """Raise PlanError where the public key cannot be read."""
        self.public_key()

    def public_key(self) -> str:
        """Return the public key that machines get; empty where AWS has it by name."""
        path = self.public_key_file
        if path is None:
            return ""
        try:
            text = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            found = getattr(error, "strerror", "") or "no text"
            raise PlanError(_no_key(path, found)) from error
        if PRIVATE in text:
            # It would leave this machine.
            raise PlanError(_no_key(path, "a private key"))
        if len(text.splitlines()) != 1:
            raise PlanError(_no_key(path, f"{len(text.splitlines())} lines"))
        return text


def _no_key(path: Path, found: str) -> Problem:
    return Problem(
        f"no public key in {path}",
        expected="one line, as ssh-keygen writes it into a file that ends with .pub",
        found=found,
        where="aws_ssh_public_key_file",
        fix=f"ssh-keygen -t ed25519 -f {path.with_suffix('')}"
        if path.suffix == ".pub"
        else "name the file that ends with .pub",
    )
