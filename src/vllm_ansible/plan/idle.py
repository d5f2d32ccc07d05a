"""Accelerators that no engine uses: how many, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_ansible.plan.plan import Plan

# By host, how many of its devices no engine uses, and how many it has.
Counts = Mapping[str, tuple[int, int]]
FIX = "give an engine another layout or nodes, add an engine, or ask for fewer hosts"


def idle_devices(plan: Plan, devices: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return of each host how many of its devices no engine uses, and how many it has."""
    return {
        host: (count - sum(len(engine.devices(host)) for engine in plan.engines), count)
        for host, count in devices.items()
    }


def total(counts: Counts) -> tuple[int, int]:
    """Return how many devices of all hosts no engine uses, and how many there are."""
    return sum(free for free, _ in counts.values()), sum(count for _, count in counts.values())


def idle_line(counts: Counts) -> str:
    """Return how many devices stay idle, nothing where all are used."""
    free, whole = total(counts)
    return f"{free} of {whole} accelerators stay idle" if free else ""


def idle_warnings(counts: Counts, hosts: Sequence[str] = ()) -> list[str]:
    """Return what a person should know who pays for devices, or keeps them from others.

    hosts: those that no engine uses, which are named where there are no devices to count.
    """
    if line := idle_line(counts):
        where = ", ".join(f"{host} {few} of {of}" for host, (few, of) in counts.items() if few)
        return [f"{line}: {where}; {FIX}"]
    return [f"no engine uses {', '.join(hosts)}: {FIX}"] if hosts else []
