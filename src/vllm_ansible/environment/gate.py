"""The gate of the stage install: one environment on all hosts, and the engine imports."""

from __future__ import annotations

from typing import Any

from vllm_ansible.gate import Case
from vllm_ansible.node.environment.build import same_everywhere


def judge(case: Case) -> dict[str, Any]:
    """Return the evidence, or say which host differs in what.

    of_each_host: looks, what M(engine_environment) or M(engine_image) found. A fingerprint exists
    only where the engine was imported.
    """
    hosts, looks = case.hosts, case.each("looks")
    missing = [host for host in hosts if not looks[host]["complete"]]
    if missing and case.check_mode:
        return {"skipped": True, "skip_reason": "not built yet on " + missing[0]}
    if missing:
        return {
            "failed": True,
            "msg": f"{', '.join(missing)}: no complete environment",
            "expected": "an environment that imports on every host",
            "found": "none",
            "where": ", ".join(missing),
            "fix": "run the stage install again",
        }
    manifests = {host: looks[host]["manifest"] for host in hosts}
    problems = same_everywhere(manifests)
    if problems:
        return {
            "failed": True,
            "msg": f"the engine's environment differs: {problems[0]}",
            "expected": f"what {hosts[0]} has, on every host",
            "found": " / ".join(problems),
            "where": looks[hosts[0]]["directory"],
            "fix": "give all hosts one architecture, accelerator, CUDA toolkit and "
            "engine_python; what was changed by hand is repaired by the stage install",
        }
    first = manifests[hosts[0]]
    versions = first["versions"]
    summary = ", ".join(f"{name} {versions[name]}" for name in ("vllm", "ray", "torch"))
    return {
        "changed": False,
        "evidence": {
            "gate": "install",
            "summary": f"{summary}, Python {versions['python']}, equal on {len(hosts)} host(s)",
            "values": {**versions, "fingerprint": first["fingerprint"], "hosts": len(hosts)},
        },
    }
