"""The gate of the stage weights: every host that serves a model has it whole, and the same."""

from __future__ import annotations

from typing import Any

from vllm_ansible.gate import Case
from vllm_ansible.node.weights.models import differences


def judge(case: Case) -> dict[str, Any]:
    """Return the evidence, or say which host lacks what.

    of_each_host: looks, what M(model_weights) found; fetched, what this run fetched where it did.
    """
    hosts, looks = case.hosts, case.each("looks")
    missing = [f"{engine} on {host}" for host in hosts for engine in looks[host]["missing"]]
    if missing and case.check_mode:
        return {"skipped": True, "skip_reason": f"not fetched yet: {missing[0]}"}
    if missing:
        return {
            "failed": True,
            "msg": f"the models of some engines are missing: {', '.join(missing)}",
            "expected": "every model on every host of its engine",
            "found": f"without {', '.join(missing)}",
            "where": missing[0],
            "fix": "run the stage weights again",
        }
    found = {host: looks[host]["models"] for host in hosts}
    problems = differences(found)
    if problems:
        first = problems[0]
        return {
            "failed": True,
            "msg": f"the model of engine {first['engine']} is not the same on all its hosts",
            **{key: first[key] for key in ("expected", "found", "where")},
            "fix": "remove the copy that is wrong and run the stage weights again, or have all "
            "of them compared with what is outside (-e weights_rehash=true); a directory that "
            "was named must be the same on every host",
        }
    fetched = case.of_each_host["fetched"]
    damaged = {
        host: [str(one) for one in (fetched.get(host, {}).get("result") or {}).get("defects", ())]
        for host in hosts
    }
    return {
        "changed": False,
        "evidence": evidence(found, damaged),
        "warns": [
            f"{host}: {defect}; it was fetched again"
            for host, defects in damaged.items()
            for defect in defects
        ],
    }


def evidence(
    found: dict[str, dict[str, dict[str, Any]]], mended: dict[str, list[str]]
) -> dict[str, Any]:
    """Return what was proven, one entry for each engine, and what was damaged, by host."""
    engines: dict[str, dict[str, Any]] = {}
    for host, models in found.items():
        for name, model in models.items():
            entry = engines.setdefault(
                name,
                {
                    "name": name,
                    "model": model["model"],
                    "bytes": model["bytes"],
                    "files": model["files"],
                    "fingerprint": model["fingerprint"],
                    "hosts": [],
                },
            )
            entry["hosts"].append(host)
    texts = [
        f"{one['name']}: {one['model']}, {one['bytes'] / 2**20:.0f} MiB"
        f" on {len(one['hosts'])} host(s)"
        for one in engines.values()
    ]
    count = sum(map(len, mended.values()))
    texts += [f"{count} damaged file(s) fetched again"] if count else []
    return {
        "gate": "weights",
        "summary": "; ".join(texts) or "no engine needs weights",
        "values": {"engines": list(engines.values()), "mended": mended},
    }
