"""The gate of ports, loss and clocks between hosts."""

from __future__ import annotations

from typing import Any

from vllm_ansible.gate import Case
from vllm_ansible.verify.reach import verdict as findings
from vllm_ansible.verify.reach.measured import Measured
from vllm_ansible.verify.reach.purposes import purposes
from vllm_ansible.verify.row import FAIL, PASS, Row, with_accepted

GATE = "reach"
TOLD = ("expected", "found", "where", "fix")


def judge(case: Case) -> dict[str, Any]:
    """Return the evidence, or every finding with the first one in front.

    of: engines, as in the inventory, which tells what each port is for; port_base, the first
    internal port of the cluster; kept, the plan of the last run, whose engines keep their ports;
    accept, checks that may fail, as C(check), or C(check@where) for one place alone. of_each_host:
    what M(reach_responder) said at its begin and at its end, and probes, what M(reach_probe)
    measured.
    """
    if len(case.hosts) < 2:
        summary = "one host: there is no other to reach"
        return {"changed": False, **_evidence(summary, {"hosts": len(case.hosts)}, [])}
    if case.check_mode:
        reason = "nothing was measured, since that starts programs on the hosts"
        return {"skipped": True, "skip_reason": reason}
    found = findings.judge(_measured(case))
    rows = with_accepted(found.rows, case.of.get("accept") or [])
    missed = [row for row in rows if row.verdict == FAIL]
    told = _evidence(found.summary, dict(found.values), rows)
    if missed:
        told = {"rows": told["rows"], "values": found.values, **_failure(missed)}
    warns = [
        f"{row.what} ({row.verdict}): expected {row.expected}, found {row.found}; {row.fix}"
        for row in rows
        if row.verdict not in (PASS, FAIL)
    ]
    return {"changed": False, "warns": warns, **told}


def _measured(case: Case) -> Measured:
    """Return what hosts measured of each other."""
    begun, probes, ended = case.each("begin"), case.each("probes"), case.each("end")
    hosts, wanted = case.hosts, case.of
    return Measured(
        addresses={host: str(begun[host]["responder"]["address"]) for host in hosts},
        responders={host: begun[host]["responder"] for host in hosts},
        answered={host: bool(ended[host]["answered"]) for host in hosts},
        probes={
            (host, peer): found
            for host in hosts
            for peer, found in probes[host]["peers"].items()
            if peer in hosts
        },
        purposes=purposes(wanted["engines"], int(wanted["port_base"]), wanted.get("kept") or {}),
    )


def _evidence(summary: str, values: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    """Return what a gate that passes shows, with what it found and lets pass."""
    noted = [f"{row.what} ({row.verdict})" for row in rows if row.verdict != PASS]
    evidence = {"gate": GATE, "summary": summary, "values": {**values, "noted": noted}}
    return {"rows": [row.told() for row in rows], "evidence": evidence}


def _failure(missed: list[Row]) -> dict[str, Any]:
    """Return what a failing gate says: the first row whole, the others by name."""
    others = "; ".join(row.what for row in missed[1:])
    more = f" (and {len(missed) - 1} more: {others})" if others else ""
    return {
        "failed": True,
        "msg": f"{missed[0].what}{more}",
        **{name: getattr(missed[0], name) for name in TOLD},
        "missed": [{"check": row.check, **row.measurement()} for row in missed],
    }
