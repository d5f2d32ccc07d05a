"""Machines that are given back by the name of their host, and others in their places."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.provision.replaced import REASON, replaced

from .rental import Site, machines

MACHINES: dict[str, dict[str, Any]] = {
    "r1-0": {"id": "a"},
    "r1-1": {"id": "b"},
    "r1-2": {"id": "c"},
    "r1-3": {},
}


def test_hosts_are_named_and_their_machines_returned() -> None:
    assert replaced(["r1-1", "r1-0", "r1-1"], MACHINES, "lambda") == {"r1-1": "b", "r1-0": "a"}


@pytest.mark.parametrize(
    ("names", "provider", "message", "fix"),
    [
        ([], "lambda", "no host is named", "rented are r1-0, r1-1, r1-2"),
        (["r1-20"], "lambda", "no host is called r1-20", "did you mean r1-2?"),
        (["r1-3"], "lambda", "r1-3 has no machine yet", "run site.yml"),
        (["r1-0", "r1-1", "r1-2"], "lambda", "all 3 machines would", "playbooks/teardown.yml"),
        (["r1-0"], "", "hosts that are not rented", "take the host out of the inventory"),
        (["r1-0"], "slurm", "hosts that are not rented", "--exclude in slurm_extra_args"),
    ],
)
def test_what_cannot_be_replaced_is_told(
    names: list[str], provider: str, message: str, fix: str
) -> None:
    with pytest.raises(PlanError) as caught:
        replaced(names, MACHINES, provider)
    (problem,) = caught.value.problems
    assert message in problem.message and fix in problem.fix
    assert problem.where == "replace_hosts"


def test_the_only_machine_may_be_replaced() -> None:
    assert replaced(["r1-0"], {"r1-0": {"id": "a"}}, "lambda") == {"r1-0": "a"}


def test_a_check_says_which_slot_would_be_replaced_and_ends_nothing(site: Site) -> None:
    first = site(machines("rent"))["rent"]["machines"][1]["id"]
    site.cloud.log.clear()
    told = site(machines("check", rejected={first: REASON}), flags=("--check",))["check"]
    assert told["changed"]
    assert told["evidence"]["summary"] == f"slot 1 would be replaced: {REASON}"
    assert site.cloud.writes == []
