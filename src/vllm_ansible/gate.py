"""What a gate is given: values, and what a variable holds on each host of this run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem


@frozen
class Case:
    """What a judge may know; it reads nothing else.

    of holds the values that the task gives. of_each_host has, by the names that the task gives
    them, what a variable holds by host, and variables the names of these variables. A host that
    lacks a variable is missing in it.
    """

    hosts: tuple[str, ...]
    of: Mapping[str, Any]
    of_each_host: Mapping[str, Mapping[str, Any]]
    variables: Mapping[str, str]
    check_mode: bool = False

    def each(self, name: str) -> dict[str, Any]:
        """Return the values of all hosts, or refuse to judge without one of them."""
        found = self.of_each_host[name]
        lacking = [host for host in self.hosts if host not in found]
        if lacking:
            raise PlanError(unknown(lacking, self.variables[name]))
        return {host: found[host] for host in self.hosts}


def unknown(hosts: Sequence[str], variable: str) -> Problem:
    """Return what is wrong where hosts lack what an earlier stage leaves on each."""
    return Problem(
        f"{', '.join(hosts)} lack the fact {variable}",
        expected=f"{variable} on every host",
        found=f"none on {', '.join(hosts)}",
        where="the stage that looks at the hosts",
        fix="run the stages in order (site.yml), without --start-at-task",
    )
