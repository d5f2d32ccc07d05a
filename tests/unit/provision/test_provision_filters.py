"""What the role makes of the verdicts on its machines."""

from __future__ import annotations

from typing import Any

import pytest
from provision_filters import machine_verdict, machines_unfit

FIT = {"id": "a", "accepted": True, "reason": "", "told": "1 x H200"}
UNFIT = {"id": "b", "accepted": False, "reason": "memory differs", "told": ""}


def test_only_machines_that_were_looked_at_and_are_not_fit_are_replaced() -> None:
    hosts: dict[str, Any] = {
        "one": {"__provision_verdict": FIT, "provision_machine": {"id": "a"}},
        "two": {"__provision_verdict": UNFIT, "provision_machine": {"id": "b"}},
        "three": {},
        "replaced": {"__provision_verdict": UNFIT, "provision_machine": {"id": "c"}},
        "given up": {"__provision_verdict": UNFIT},
    }
    assert machines_unfit(hosts, hosts) == {"b": "memory differs"}
    assert machines_unfit(hosts, ["one"]) == {}


@pytest.mark.parametrize(
    ("verdict", "machine", "accepted", "told"),
    [
        (FIT, {"id": "a"}, True, "1 x H200"),
        (UNFIT, {"id": "b"}, False, "memory differs"),
        (FIT, {"id": "another"}, False, "nothing was measured"),
        ({}, {"id": "a"}, False, "nothing was measured"),
        (FIT, {}, False, "not rented"),
    ],
)
def test_a_verdict_counts_for_its_own_machine(
    verdict: dict[str, Any], machine: dict[str, Any], accepted: bool, told: str
) -> None:
    assert machine_verdict(verdict, machine) == {"accepted": accepted, "told": told}
