"""The gate of the links between ranks: right results, and no slow host, card, pair or side.

The threshold of all ranks is in `collectives/expected.json`, that of a pair in
`node.collectives.culprit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.gate import Case
from vllm_ansible.verify import links
from vllm_ansible.verify.bandwidths import Cluster
from vllm_ansible.verify.collectives.expected import believable
from vllm_ansible.verify.row import failure, warnings, with_accepted


def judge(case: Case) -> dict[str, Any]:
    """Return rows, figures and evidence, or say what is slow.

    of: found, the result of the task of M(collective_check), empty where nothing was measured;
    backend, the library that was measured, V(none) where none is known; kept, the figures of the
    last accepted run; accept, checks that may fail (C(links), or C(links@gh-07)); accelerators of
    the user's own; again, whether a rate that is too low is no failure yet, as the links are to be
    measured once more; before, what was found in the first of two measurements: both figures are
    reported, with a warning where the second one passes. of_each_host: site, its C(site_host).
    """
    site, wanted = case.each("site"), case.of
    found = wanted["found"]
    ranks = {host: int(one["accelerator_count"]) for host, one in site.items()}
    if not found:
        return _nothing(wanted["backend"], ranks, case.check_mode)
    kept, known = wanted.get("kept") or None, wanted.get("accelerators")
    rows = links.judge(found, cluster(found, site, ranks), kept, known)
    if before := wanted.get("before"):
        first = links.judge(before, cluster(before, site, ranks), kept, known)
        rows = links.with_first(rows, first)
    rows = with_accepted(rows, wanted.get("accept") or [])
    told = {"changed": False, "rows": [row.told() for row in rows], "links": found}
    if wanted.get("again") and links.slow_alone(rows):
        return {**told, "again": True, "slow": failure(rows)["found"]}
    # What names a place says more than that the whole is slow.
    return {
        **told,
        "again": False,
        "warns": warnings(rows),
        "evidence": links.evidence(found, rows),
        **failure(rows, first=("links", "cards")),
    }


def _nothing(backend: str, ranks: Mapping[str, int], check_mode: bool) -> dict[str, Any]:
    """Return the evidence where nothing was measured, and why."""
    several = sum(ranks.values()) > 1
    if check_mode and several:
        return {"skipped": True, "skip_reason": "check mode loads no link"}
    summary = "one rank in all: nothing to measure between ranks"
    if several:
        summary = f"links are not measured: no library for {backend} accelerators is known here"
    evidence = {"gate": "links", "summary": summary, "values": {"ranks": sum(ranks.values())}}
    warns = [summary] if several else []
    return {"changed": False, "rows": [], "links": {}, "evidence": evidence, "warns": warns}


def cluster(found: Mapping[str, Any], site: Mapping[str, Any], ranks: Mapping[str, int]) -> Cluster:
    """Return what is to be known of the hosts."""
    links = found.get("links") or {}
    return Cluster(
        ranks,
        str(next(iter(site.values()))["interface"]),
        str(found["versions"]["device"]),
        believable(
            links.get("speed_mbit"), links.get("driver") or None, bool(links.get("physical"))
        ),
        tuple(links.get("link_layers", ())),
        float(links.get("ports", 0.0)),
        str(links.get("machine") or "") or None,
        int(links.get("efa") or 0),
    )
