"""What is proven of the wheels on all hosts, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.problem import Problem

# By host, what the module engine_wheels returned.
Looks = Mapping[str, Mapping[str, Any]]


def verdict(looks: Looks) -> list[Problem]:
    """Return one problem for each wheel that a host lacks, or has otherwise than the others."""
    problems = []
    first: dict[str, tuple[str, str]] = {}
    for host, look in looks.items():
        for wheel in look["wheels"]:
            key, name = wheel["key"], wheel["name"]
            found = look["present"].get(key)
            if found is None:
                problems.append(
                    Problem(
                        f"{host} lacks the wheel of {name}",
                        expected=f"commit {wheel['revision'][:12]}, built",
                        found="none",
                        where=f"{host}:{look['places'][key]}",
                        fix="run the stage install again",
                    )
                )
                continue
            other, digest = first.setdefault(key, (host, found["sha256"]))
            if digest != found["sha256"]:
                problems.append(
                    Problem(
                        f"{host} has another wheel of {name} than {other}",
                        expected=digest,
                        found=found["sha256"],
                        where=f"{host}:{look['places'][key]}",
                        fix="remove that folder and run the stage install again",
                    )
                )
    return problems


def told(looks: Looks, shares: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary, a sentence for people, and the values behind it."""
    records = {key: one for look in looks.values() for key, one in look["present"].items()}
    hosts = shares["hosts"]
    parts, values = [], []
    for key, record in records.items():
        builders = [host for host, share in hosts.items() if key in share["builds"]]
        takers = [host for host, share in hosts.items() if key in share["takes"]]
        if builders:
            origin = f"built on {builders[0]} in {record['seconds']:.0f} s"
        else:
            origin = "kept from an earlier build" if takers else "there already"
        commit = record["revision"][:12]
        parts.append(f"{record['name']} {record['version']} ({commit}): {origin}")
        values.append({**{name: record[name] for name in TOLD}, "origin": origin})
    summary = "; ".join(parts) + f", on {len(looks)} host(s)"
    if shares["damaged"]:
        summary += f"; built again: {'; '.join(shares['damaged'])}"
    return {"summary": summary, "values": {"wheels": values, "damaged": shares["damaged"]}}


TOLD = (
    *("name", "version", "revision", "sha256", "size"),
    *("system", "python", "cuda", "accelerator", "architecture"),
)
