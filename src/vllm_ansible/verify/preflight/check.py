"""What a check is, and the row that it comes to on a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

PASS, WARN, FAIL, SKIPPED, ACCEPTED = "pass", "warn", "fail", "skipped", "accepted"
EVERYWHERE = "all hosts"


@dataclass(frozen=True)
class Row:
    """One check on one host, or over several of them; found says why where it was skipped."""

    check: str
    host: str
    what: str
    threshold: str
    found: str
    verdict: str
    why: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the row as JSON holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A check by its name: what is measured, and why in one clause."""

    id: str
    what: str
    why: str

    def row(self, verdict: str, host: str, threshold: str, found: str, fix: str = "") -> Row:
        """Return the row of a verdict."""
        return Row(self.id, host, self.what, threshold, found, verdict, self.why, fix)

    def judged(self, wrong: str, host: str, threshold: str, found: str, fix: str) -> Row:
        """Return a row of the given verdict; the fix is only told where something is wrong."""
        return self.row(wrong, host, threshold, found, "" if wrong == PASS else fix)

    def skipped(self, host: str, reason: str) -> Row:
        """Return the row that says why the check does not apply."""
        return self.row(SKIPPED, host, "", reason)


@dataclass(frozen=True)
class Cluster:
    """What is judged: site_host and look of each host by name, in inventory order."""

    hosts: Mapping[str, Mapping[str, Any]]
    looks: Mapping[str, Mapping[str, Any]]
    engines: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    # The CUDA release that the engine's environment is made for, like 13.0; empty if unknown.
    cuda: str = ""
    # What helps where a container's limits are too small and somebody else starts it.
    limits: str = ""

    @property
    def several(self) -> bool:
        """Tell whether hosts have to reach each other."""
        return len(self.hosts) > 1

    @property
    def ray(self) -> bool:
        """Tell whether an engine runs on Ray, which is what engines do unless they say so."""
        return any(engine.get("executor", "ray") == "ray" for engine in self.engines)

    def kind(self, host: str) -> str:
        """Return what a host computes with."""
        return str(self.hosts[host]["accelerator"])


def differing(values: Mapping[str, str]) -> tuple[str, list[str], str]:
    """Return the most common value, the hosts that have another, and all of it in words."""
    hosts: dict[str, list[str]] = {}
    for host, value in values.items():
        hosts.setdefault(value, []).append(host)
    common = max(hosts, key=lambda value: len(hosts[value]))
    odd = [host for value, names in hosts.items() if value != common for host in names]
    if not odd:
        return common, [], f"{common or 'none'} everywhere"
    told = "; ".join(f"{value or 'none'} on {', '.join(names)}" for value, names in hosts.items())
    return common, odd, told


def equal(check: Check, values: Mapping[str, str], fix: str, wrong: str = FAIL) -> Row:
    """Return the row of something that must be equal on all hosts that have it."""
    if len(values) < 2:
        return check.skipped(EVERYWHERE, f"{len(values)} host(s) with it: nothing to compare")
    common, odd, told = differing(values)
    where = ", ".join(odd) or EVERYWHERE
    return check.judged(wrong if odd else PASS, where, f"{common} everywhere", told, fix)


def release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; none where it has none."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def gib(size: float) -> str:
    """Return bytes in GiB, as people read them."""
    return f"{size / (1 << 30):.1f} GiB"
