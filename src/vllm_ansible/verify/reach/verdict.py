"""The verdict over all that hosts measured of each other: what is wrong, and the figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ansible.node.reach.ports import unfold
from vllm_ansible.verify.reach import blocked, clocks, firewalls, loss
from vllm_ansible.verify.reach.culprits import culprits
from vllm_ansible.verify.reach.measured import Measured, Pair, listed, shown
from vllm_ansible.verify.reach.purposes import told
from vllm_ansible.verify.reach.spoken import (
    clock_findings,
    clock_warnings,
    loss_findings,
    slow_pairs,
    unmeasured_losses,
)
from vllm_ansible.verify.row import FAIL, PASS, WARN, Row

# What each check that passes has shown.
CHECKS = {
    "reach_strangers": "planned ports are free",
    "reach_ports": "every host reaches every other on every port",
    "reach_key": "all hosts have one key",
    "reach_loss": "no datagrams are lost",
    "reach_clocks": "all hosts have one time",
    "reach_round_trip": "round trips are of one size",
    "reach_route": "hosts reach each other over the data plane",
}


@dataclass(frozen=True)
class Verdict:
    """A row for all that fails or is worth a warning, and one for each check that passes."""

    rows: tuple[Row, ...]
    summary: str
    values: Mapping[str, Any]


def judge(measured: Measured) -> Verdict:
    """Return what is wrong between the hosts, and every figure that was measured."""
    failed = {pair: frozenset(ports) for pair, ports in measured.failed.items()}
    causes = blocked.attribute(measured.tried, failed)
    counted, silent = loss.counts(measured.losses())
    time = clocks.judge(measured.spoken(), measured.hosts)
    rows = (
        *_strangers(measured),
        *(firewalls.explain(cause, measured) for cause in causes),
        *_keyless(measured, failed),
        *loss_findings(counted),
        *clock_findings(time),
        *clock_warnings(time),
        *slow_pairs(measured),
        *_detours(measured),
        *unmeasured_losses(silent),
    )
    told = {row.check for row in rows}
    passed = (
        Row(check, ", ".join(measured.hosts), PASS, what)
        for check, what in CHECKS.items()
        if check not in told
    )
    values = _values(measured, counted, silent, time)
    return Verdict((*rows, *passed), _summary(values), values)


def _strangers(measured: Measured) -> list[Row]:
    """Return a finding for each host where somebody else has planned ports."""
    findings = []
    for host in measured.hosts:
        taken = measured.strangers(host)
        if taken:
            owners = {str(one["who"]): one["pid"] for one in taken.values()}
            pids = [str(pid) for pid in owners.values() if pid]
            look = f"`ps -fp {','.join(pids)}`" if pids else f"`ss -tanp` for {shown(taken)}"
            findings.append(
                Row(
                    verdict=FAIL,
                    check="reach_strangers",
                    what=f"ports {shown(taken)} of {host} are taken by {listed(owners)}",
                    expected=f"free ports for {told(list(taken), measured.purposes)}",
                    found=listed(owners),
                    where=host,
                    fix=f"on {host}: {look} shows what it is; stop it, or set port_base or the "
                    "engine's port to a range that is free",
                )
            )
    return findings


def _keyless(measured: Measured, failed: Mapping[Pair, frozenset[int]]) -> list[Row]:
    """Return a finding for each host or pair that connects, but does not prove one key."""
    said = {
        (one, other): str(found["silent"])
        for (one, other), found in measured.probes.items()
        if "silent" in found
        and not set(measured.responders[other]["answers"]) <= failed[one, other]
    }
    bad, every = {frozenset(pair) for pair in said}, {frozenset(pair) for pair in measured.probes}
    findings = []
    for hosts, pairs in culprits(bad, every).items():
        others = sorted({name for pair in pairs for name in pair} - set(hosts))
        who = f"{hosts[0]} and the others ({', '.join(others)})" if others else listed(hosts)
        addresses = [measured.addresses[name] for name in hosts]
        found = (text for pair, text in said.items() if frozenset(pair) in pairs)
        findings.append(
            Row(
                verdict=FAIL,
                check="reach_key",
                what=f"{who} do not know each other as hosts of one cluster",
                expected="answers that prove the cluster's key",
                found=listed(dict.fromkeys(found)),
                where=" <-> ".join(hosts),
                fix=f"run the stage prepare on all hosts, so that {listed(hosts)} has the key of "
                f"the others; if it stays, something else answers for {listed(addresses)}, such as "
                f"a second host with this address: `ip neigh show {addresses[0]}` on a peer",
            )
        )
    return findings


def _detours(measured: Measured) -> list[Row]:
    """Return a warning for each host that leaves by an address that is not its data plane's."""
    by_host: dict[str, dict[str, list[str]]] = {}
    for (one, other), found in measured.spoken().items():
        if found["source"] != measured.addresses[one]:
            by_host.setdefault(one, {}).setdefault(str(found["source"]), []).append(other)
    return [
        Row(
            verdict=WARN,
            check="reach_route",
            what=f"{host} reaches {listed(peers)} from another address than its data plane's",
            expected=measured.addresses[host],
            found=source,
            where=host,
            fix=f"on {host}: `ip route get {measured.addresses[peers[0]]}` shows the way that is "
            "taken",
        )
        for host, sources in by_host.items()
        for source, peers in sources.items()
    ]


def _matrix(values: Mapping[Pair, Any]) -> dict[str, dict[str, Any]]:
    """Return values of pairs by the first host, then by the second."""
    found: dict[str, dict[str, Any]] = {}
    for (one, other), value in values.items():
        found.setdefault(one, {})[other] = value
    return found


def _values(
    measured: Measured,
    counted: Mapping[Pair, loss.Count],
    silent: list[Pair],
    time: clocks.Clocks,
) -> dict[str, Any]:
    trips = {pair: found["round_trip_us"] for pair, found in measured.spoken().items()}
    lost = {pair: round(100 * count.fraction, 3) for pair, count in counted.items()}
    tried = measured.tried
    return {
        "hosts": len(measured.hosts),
        "pairs": len({frozenset(pair) for pair in measured.probes}),
        "connections": sum(map(len, tried.values())),
        "blocked": sum(map(len, measured.failed.values())),
        "ports": shown(set().union(*tried.values())),
        "left_to_running_engines": {
            name: shown(unfold(measured.responders[name]["left"]))
            for name in measured.hosts
            if measured.responders[name]["left"]
        },
        "round_trip_us": _matrix(trips),
        "round_trip_median_us": round(statistics.median(trips.values()), 1) if trips else None,
        "round_trip_worst_us": max(trips.values(), default=None),
        "clock_offset_seconds": {name: round(one.seconds, 6) for name, one in time.offsets.items()},
        "clock_uncertainty_seconds": {name: one.uncertainty for name, one in time.offsets.items()},
        "loss_percent": _matrix(lost),
        "loss_worst_percent": max(lost.values(), default=None),
        "loss_not_measured": [list(pair) for pair in silent],
    }


def _summary(values: Mapping[str, Any]) -> str:
    trip, lost = values["round_trip_median_us"], values["loss_worst_percent"]
    offsets = values["clock_offset_seconds"].values()
    apart = max(offsets, default=0.0) - min(offsets, default=0.0)
    words = [
        f"{values['hosts']} hosts reach each other on every port "
        f"({values['connections']} connections)",
        f"round trip {trip:g} us, worst {values['round_trip_worst_us']:g}" if trip else "",
        f"loss at most {lost:g} %" if lost is not None else "loss not measured",
        f"clocks within {apart * 1000:.1f} ms" if offsets else "",
    ]
    return ", ".join(word for word in words if word)
