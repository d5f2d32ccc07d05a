"""Judge what was measured between ranks: results, bandwidth, and what is slow beside what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.problem import Problem
from vllm_ansible.verify import bandwidths, culprits
from vllm_ansible.verify.bandwidths import Cluster
from vllm_ansible.verify.row import FAIL, PASS, WARN, Row

# TCP that resends more than this loses packets; full queues of healthy, busy links made it resend
# 0.03 % at most, 2 % of loss on one of four hosts 0.4 % on the least of them.
RESENT = 0.003
# Rates between ranks on CPUs fall with whatever else these CPUs do: such a row is no refusal.
RATES = ("bandwidth", "links", "cards")
BUSY = "other load on these CPUs, or the link"
# A link of a device whose engine had been killed a second before gave two thirds of its rate.
SETTLED = "load that has ended since: a device whose engine has just ended, or another job"


def judge(
    found: Mapping[str, Any],
    cluster: Cluster,
    kept: Mapping[str, Any] | None = None,
    accelerators: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Row]:
    """Return the rows of one measurement, as library/collective_check.py documents it.

    kept: the figures of the last accepted run on the same hosts, None for the first one.
    Raises PlanError for an accelerator that nobody knows.
    """
    kind = accelerator(cluster.device, accelerators) if cluster.device else None
    judged = bandwidths.Judge(found, cluster, kind, kept or {})
    problems: list[Problem] = judged.wrong_transport()
    rows = [_wrong(found)]
    if found["across"]:
        links = culprits.between_hosts(found["culprit"], found["pairs"], cluster.interface)
        rows += [judged.across(problems), links, _resent(found["retransmitted"])]
        problems = []
    rows += [judged.inside(host, problems) for host in found["inside"]]
    rows += [culprits.inside_host(host, one) for host, one in found["cards"].items()]
    return rows if cluster.device else [_on_cpus(row) for row in rows]


def slow_alone(rows: Sequence[Row]) -> bool:
    """Tell whether rates are all that fails: such a measurement is made once more."""
    missed = [row for row in rows if row.verdict == FAIL]
    return bool(missed) and all(row.check in RATES for row in missed)


def with_first(rows: Sequence[Row], first: Sequence[Row]) -> list[Row]:
    """Return the rows of a second measurement, beside what the first one found too low."""
    low = {_place(row): row for row in first if row.verdict == FAIL and row.check in RATES}
    return [
        replace(
            row,
            verdict=WARN if row.verdict == PASS else row.verdict,
            found=f"{row.found}; the first measurement: {low[_place(row)].found}",
            cause=SETTLED if row.verdict == PASS else row.cause,
        )
        if _place(row) in low
        else row
        for row in rows
    ]


def _place(row: Row) -> tuple[str, str]:
    """Return what two measurements have in common; of links between hosts, there is one row."""
    return row.check, "" if row.check == "links" else row.where


def evidence(found: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Return what the report shows: one line, the rows, and the figures behind them."""
    words = []
    if found["across"]:
        bandwidth = next(row for row in rows if row.check == "bandwidth")
        slowest = min(found["pairs"], key=lambda pair: float(pair["gbs"]))
        words.append(f"all_reduce {bandwidth.found}, {bandwidth.expected}")
        words.append(
            f"{len(found['pairs'])} pairs in {found['rounds']} rounds, slowest "
            f"{slowest['first']} - {slowest['second']} {culprits.rate(slowest['gbs'])}"
        )
    for host, one in found["inside"].items():
        words.append(f"inside {host} {culprits.rate(one['all_reduce']['busbw'])}")
    values = {key: found[key] for key in ("across", "inside", "pairs", "cards", "seconds")}
    told = [row.told() for row in rows]
    return {"gate": "links", "summary": "; ".join(words), "values": {**values, "rows": told}}


def _on_cpus(row: Row) -> Row:
    """Return the row with a rate that is too low as a warning."""
    if row.verdict != FAIL or row.check not in RATES:
        return row
    return replace(row, verdict=WARN, cause=BUSY)


def _wrong(found: Mapping[str, Any]) -> Row:
    """Return the row on results: one wrong element is a failure."""
    wrong: dict[str, int] = {}
    for one in found["across"].values():
        wrong[f"{one['operation']} over all hosts"] = int(one["wrong"])
    for host, operations in found["inside"].items():
        for one in operations.values():
            wrong[f"{one['operation']} inside {host}"] = int(one["wrong"])
    for pair in (*found["pairs"], *(p for one in found["cards"].values() for p in one["pairs"])):
        wrong[f"{pair['first']} - {pair['second']}"] = int(pair["wrong"])
    bad = {name: count for name, count in wrong.items() if count}
    told = ", ".join(f"{count} in {name}" for name, count in bad.items()) or "0"
    return Row(
        "results",
        "all hosts",
        FAIL if bad else PASS,
        "the results of collectives",
        "no wrong element",
        told,
        "do not serve on these hosts: look for memory (ECC, Xid) and link errors on those named",
    )


def _resent(parts: Mapping[str, float]) -> Row:
    worst = max(parts, key=lambda host: parts[host])
    bad = parts[worst] > RESENT
    return Row(
        "resent",
        worst if bad else "all hosts",
        WARN if bad else PASS,
        "the packets that TCP had to send again",
        f"at most {RESENT:.1%} on every host",
        f"{parts[worst]:.2%} on {worst}",
        "a link loses packets, most likely that of the host named: see `ethtool -S`, its cable and "
        "its switch port",
    )
