"""All checks in the order in which they are told, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vllm_ansible.verify.preflight import (
    devices,
    kernels,
    network,
    rdma,
    room,
    storage,
    system,
    versions,
)
from vllm_ansible.verify.preflight.check import (
    ACCEPTED,
    EVERYWHERE,
    FAIL,
    PASS,
    SKIPPED,
    WARN,
    Check,
    Cluster,
    Row,
)
from vllm_ansible.verify.preflight.repairs import hosts_of

PARTS = (versions, system, kernels, devices, room, network, rdma, storage)
CHECKS: tuple[Check, ...] = tuple(check for part in PARTS for check in part.CHECKS)
# The worst of a check's rows is what the check comes to.
ORDER = (FAIL, ACCEPTED, WARN, PASS, SKIPPED)


def rows(cluster: Cluster) -> list[Row]:
    """Return every row, each check on every host that it applies to or is skipped on."""
    return [row for part in PARTS for row in part.rows(cluster)]


def accept(found: Sequence[Row], accepted: Sequence[str]) -> list[Row]:
    """Return the rows with those failures accepted that are named: `check` or `check@host`."""
    return [
        replace(row, verdict=ACCEPTED) if row.verdict == FAIL and _named(row, accepted) else row
        for row in found
    ]


def _named(row: Row, accepted: Sequence[str]) -> bool:
    hosts = hosts_of(row.host)
    return row.check in accepted or all(f"{row.check}@{host}" in accepted for host in hosts)


def summary(found: Sequence[Row], hosts: int) -> str:
    """Return one line: how many checks came to what."""
    worst: dict[str, str] = {}
    for row in found:
        before = worst.get(row.check, SKIPPED)
        worst[row.check] = min(before, row.verdict, key=ORDER.index)
    count = {verdict: list(worst.values()).count(verdict) for verdict in ORDER}
    done = len(worst) - count[SKIPPED]
    parts = [f"{count[PASS]} pass"]
    parts += [f"{count[WARN]} warning{'s' if count[WARN] != 1 else ''}"] if count[WARN] else []
    parts += [f"{count[ACCEPTED]} accepted"] if count[ACCEPTED] else []
    parts += [f"{count[FAIL]} fail"] if count[FAIL] else []
    skipped = count[SKIPPED]
    parts += [f"{skipped} {'do' if skipped != 1 else 'does'} not apply"] if skipped else []
    return f"{done} checks on {hosts} host{'s' if hosts != 1 else ''}: {', '.join(parts)}"


def sentence(row: Row) -> str:
    """Return a row that is not all well as one line."""
    where = "" if row.host == EVERYWHERE else f" on {row.host}"
    fix = f"; {row.fix}" if row.fix else ""
    return f"{row.check}{where}: {row.what}: {row.found}, wanted {row.threshold}{fix}"


def missed(row: Row) -> dict[str, Any]:
    """Return a failing row as gates tell a measurement that does not hold."""
    return {
        "check": row.check,
        "what": row.what,
        "ok": False,
        "expected": row.threshold,
        "found": row.found,
        "where": row.host,
        "cause": row.why,
        "fix": row.fix,
    }
