"""What no two engines of a plan may have: a port of a host, or a device."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.ports import blocks_from, shared_ports
from vllm_ansible.problem import Problem


def clashes(planned: Sequence[PlannedEngine], port_base: int) -> list[Problem]:
    """Return one problem for each port or device that would have two owners."""
    return [*_port_problems(planned, port_base), *_device_problems(planned)]


def _port_problems(planned: Sequence[PlannedEngine], port_base: int) -> list[Problem]:
    """Return the refusals of ports two engines of one host would share, or that do not exist."""
    at_most = blocks_from(port_base)
    problems = [
        Problem(
            f"engine {engine.name} would be number {engine.index + 1} of its cluster, and from "
            f"port {port_base} on there is room for {at_most}",
            expected=f"at most {at_most} engines",
            found=f"index {engine.index}, port_base {port_base}",
            where="engines",
            fix="split them over two clusters, or set port_base between 1024 and 32668",
        )
        for engine in planned
        if engine.index >= at_most
    ]
    for place_, first in enumerate(planned):
        for second in planned[place_ + 1 :]:
            shared = shared_ports(first.ports, second.ports)
            together = set(first.hosts) & set(second.hosts)
            if shared and together:
                problems.append(
                    Problem(
                        f"engines {first.name} and {second.name} would both listen on port "
                        f"{shared[0]} of {sorted(together)[0]}",
                        expected="every port of a host has one owner",
                        found=f"port {', '.join(map(str, shared))}",
                        where=f"engines {first.name} and {second.name}",
                        fix="give one of them another port (port: 8100, say)",
                    )
                )
    return problems


def _device_problems(planned: Sequence[PlannedEngine]) -> list[Problem]:
    """Return the refusals of devices that two ranks hold: only a kept plan that was edited has."""
    owners: dict[tuple[str, int], str] = {}
    problems = []
    for engine in planned:
        for rank in engine.ranks:
            place, owner = (rank.host, rank.device), f"{engine.name} rank {rank.rank}"
            if place in owners:
                problems.append(
                    Problem(
                        f"{owners[place]} and {owner} both have device {rank.device} of "
                        f"{rank.host}",
                        expected="every device has one rank",
                        found=f"device {rank.device} of {rank.host} twice",
                        where=f"engines {engine.name}, in the kept plan",
                        fix="run the verb teardown, then site.yml: a new plan is made",
                    )
                )
            owners.setdefault(place, owner)
    return problems
