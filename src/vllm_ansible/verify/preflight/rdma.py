"""InfiniBand, RoCE and EFA cards: all there, all active, all alike."""

from __future__ import annotations

from typing import Any

from vllm_ansible.accelerators.instances import efa_cards
from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.verify.preflight.check import FAIL, PASS, WARN, Check, Cluster, Row, equal
from vllm_ansible.verify.preflight.own import own_checks

STATE = Check("hca_state", "the state of RDMA ports", "a port that is down is left out, or hangs")
RATE = Check("hca_rate", "link layer and rate of RDMA ports", "the slowest card sets the pace")
ERRORS = Check("hca_errors", "error counters of RDMA ports", "errors on a cable become retries")
EFA = Check("efa", "the number of EFA cards", "NCCL uses fewer, or falls back to TCP")
PEER_MEMORY = Check(
    "peer_memory",
    "RDMA into device memory",
    "without it data goes by the processor: 180 -> 10 GB/s",
)
CHECKS = (STATE, RATE, ERRORS, EFA, PEER_MEMORY)


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all hosts."""
    ports = {host: _ports(cluster.looks[host]["rdma"]) for host in cluster.hosts}
    active = {name for one in ports.values() for name, port in one.items() if _active(port)}
    found = []
    for host in cluster.hosts:
        if not ports[host] and not active:
            reason = "no InfiniBand, RoCE or EFA card here"
            found += [check.skipped(host, reason) for check in (STATE, ERRORS)]
        else:
            found += [_state(host, ports[host], active), _errors(host, ports[host])]
        found += [_efa(cluster, host), _peer_memory(cluster, host)]
    rates = {host: _rates(one) for host, one in ports.items() if active}
    return [*found, equal(RATE, rates, "look at the cable and the switch of the slower ones")]


def _ports(cards: Any) -> dict[str, Any]:
    return {
        f"{name}/{number}": port
        for name, card in cards.items()
        for number, port in card["ports"].items()
    }


def _active(port: Any) -> bool:
    return bool(port["state"] == "ACTIVE")


def _state(host: str, ports: Any, active: set[str]) -> Row:
    """Judge a port by its like on other hosts: what is down everywhere is not in use."""
    down = [name for name in sorted(active) if name not in ports or not _active(ports[name])]
    told = ", ".join(
        f"{name} {ports[name]['state'] if name in ports else 'is missing'}" for name in down
    )
    unused = [name for name, port in ports.items() if not _active(port) and name not in active]
    fix = "ibstat; look at the cable, the switch port and, for InfiniBand, the subnet manager"
    if not active:
        return STATE.row(FAIL, host, "ACTIVE", f"none of {', '.join(unused)} is ACTIVE", fix)
    if not down:
        told = f"{len(active)} ACTIVE" + (
            f"; down everywhere: {', '.join(unused)}" if unused else ""
        )
    return STATE.judged(FAIL if down else PASS, host, "ACTIVE", told, fix)


def _rates(ports: Any) -> str:
    kinds: dict[str, int] = {}
    for port in ports.values():
        if _active(port):
            kind = f"{port['link_layer']} {port['rate']}"
            kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))


def _errors(host: str, ports: Any) -> Row:
    bad = [
        f"{name} {counter} {count}"
        for name, port in ports.items()
        for counter, count in port["errors"].items()
        if count
    ]
    if not any(port["errors"] for port in ports.values()):
        return ERRORS.skipped(host, "these cards have no such counters")
    fix = "read them again after load: perfquery; where they grow, change cable or module"
    return ERRORS.judged(WARN if bad else PASS, host, "0 of each", ", ".join(bad) or "0", fix)


def _efa(cluster: Cluster, host: str) -> Row:
    look = cluster.looks[host]
    product = look["system"]["product"]
    cards = efa_cards()
    if product not in cards:
        known = f"how many {product or 'this machine'} should have is not known"
        return EFA.skipped(host, known)
    count, wanted = sum(card["efa"] for card in look["rdma"].values()), cards[product]
    fix = "attach the missing interfaces to the instance; right after boot, look again"
    verdict = PASS if count >= wanted else FAIL
    return EFA.judged(verdict, host, f"{wanted} on {product}", str(count), fix)


def _peer_memory(cluster: Cluster, host: str) -> Row:
    look = cluster.looks[host]
    cards = [name for name, card in look["rdma"].items() if not card["efa"]]
    if not has_devices(cluster.kind(host)) or not cards:
        return PEER_MEMORY.skipped(host, "no InfiniBand or RoCE card beside accelerators")
    own = own_checks().get(cluster.kind(host))
    if own is None:
        return PEER_MEMORY.skipped(host, f"what lets cards reach {cluster.kind(host)} is not known")
    wanted, told, fix = own.peer_memory(look["devices"]["peer_memory"])
    verdict = PASS if told else FAIL
    return PEER_MEMORY.judged(verdict, host, wanted, told or "not loaded", fix)
