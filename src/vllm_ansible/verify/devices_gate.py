"""The gate of what accelerators did: results and rates."""

from __future__ import annotations

from typing import Any

from vllm_ansible.gate import Case
from vllm_ansible.verify import devices
from vllm_ansible.verify.row import failure, warnings, with_accepted


def judge(case: Case) -> dict[str, Any]:
    """Return rows and evidence, or say which device fails.

    of: accept, checks that may fail (C(peers), or at one place C(peers@gh-07:0)); accelerators of
    the user's own. of_each_host: looks, what M(accelerator_probe) measured.
    """
    looks = case.each("looks")
    probes = {host: look["probe"] for host, look in looks.items() if "probe" in look}
    rows = devices.judge(probes, case.of.get("accelerators"))
    if not probes:
        if any("measured" in look for look in looks.values()):
            return {"skipped": True, "skip_reason": "check mode measures nothing"}
        told = "no accelerator that can be probed"
        evidence = {"gate": "devices", "summary": told, "values": {}}
        return {"changed": False, "rows": [], "evidence": evidence}
    rows = with_accepted(rows, case.of.get("accept") or [])
    told_rows = [row.told() for row in rows]
    values = {"rows": told_rows, "probes": probes}
    return {
        "changed": False,
        "rows": told_rows,
        "warns": warnings(rows),
        "evidence": {"gate": "devices", "summary": devices.summary(probes), "values": values},
        **failure(rows),
    }
