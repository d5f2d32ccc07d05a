"""The gate preflight: what every host shows before an engine starts, check by check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_ansible.gate import Case
from vllm_ansible.verify.preflight import host_facts
from vllm_ansible.verify.preflight import judge as checks
from vllm_ansible.verify.preflight.check import ACCEPTED, FAIL, WARN, Cluster, Row


def judge(case: Case) -> dict[str, Any]:
    """Return the evidence with all rows, or every row that fails.

    of: engines, as the inventory says; cuda, the release that the engine's environment is made
    for, empty to skip its check; limits, what helps where nobody here starts the containers;
    accept, C(check) or C(check@host); fails, whether a failing check fails the task, else it is
    returned. of_each_host: looks, what M(preflight_info) found; hosts, its C(site_host).
    """
    looks, wanted = case.each("looks"), case.of
    cluster = Cluster(
        hosts=case.each("hosts"),
        looks={host: looks[host]["look"] for host in case.hosts},
        engines=wanted.get("engines") or [],
        cuda=wanted.get("cuda") or "",
        limits=wanted.get("limits") or "",
    )
    rows = checks.accept(checks.rows(cluster), wanted.get("accept") or [])
    # What a later failure is held against, when nobody can look any more.
    known = {
        host: host_facts.facts(cluster.looks[host], cluster.hosts[host]) for host in case.hosts
    }
    return {"changed": False, **verdict(rows, known, bool(wanted.get("fails", True)))}


def verdict(rows: Sequence[Row], known: dict[str, Any], fails: bool) -> dict[str, Any]:
    """Return the result of rows, and what people are to be warned of."""
    failing = [row for row in rows if row.verdict == FAIL]
    missed = [checks.missed(row) for row in failing]
    values = {"hosts": len(known), "rows": [row.to_dict() for row in rows], "facts": known}
    evidence = {"gate": "preflight", "summary": checks.summary(rows, len(known)), "values": values}
    if not fails:
        return {"evidence": evidence, "failing": missed}
    warns = [
        f"preflight: {'accepted: ' if row.verdict == ACCEPTED else ''}{checks.sentence(row)}"
        for row in rows
        if row.verdict in (WARN, ACCEPTED)
    ]
    if not failing:
        return {"evidence": evidence, "warns": warns}
    more = "".join(f"\n{checks.sentence(row)}" for row in failing[1:])
    first = {name: value for name, value in missed[0].items() if name not in ("ok", "what")}
    message = f"{checks.sentence(failing[0])}{more}"
    return {
        "failed": True,
        "msg": message,
        **first,
        "missed": missed,
        "values": values,
        "warns": warns,
    }
