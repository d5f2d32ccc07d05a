"""Which hosts an action speaks of: all of the group, those --limit leaves in, those that answer."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.inventory.play_variables import hosts_of_this_run, hosts_that_answer, of_each_host
from vllm_ansible.problem import PlanError

GROUPS = {"gpu": ["n1", "n2", "n3"], "all": ["n1", "n2", "n3", "bastion"]}


def variables(answer: list[str], played: list[str], limit: str = "") -> dict[str, Any]:
    return {
        "groups": GROUPS,
        "ansible_play_hosts": answer,
        "ansible_play_hosts_all": played,
        **({"ansible_limit": limit} if limit else {}),
    }


@pytest.mark.parametrize(
    ("given", "of_this_run", "that_answer"),
    [
        (variables(GROUPS["gpu"], GROUPS["gpu"]), ("n1", "n2", "n3"), ("n1", "n2", "n3")),
        (variables(["n1", "n3"], GROUPS["gpu"]), ("n1", "n2", "n3"), ("n1", "n3")),
        (variables(["n3"], ["n2", "n3"], "n2,n3"), ("n2", "n3"), ("n3",)),
        # The check of the inventory plays on localhost where nothing else is left.
        (variables(["localhost"], ["localhost"]), ("n1", "n2", "n3"), ()),
    ],
)
def test_a_lost_host_belongs_to_the_run_and_does_not_answer(
    given: dict[str, Any], of_this_run: tuple[str, ...], that_answer: tuple[str, ...]
) -> None:
    assert (hosts_of_this_run(given), hosts_that_answer(given)) == (of_this_run, that_answer)


def test_a_fact_that_a_host_lacks_is_named_with_the_host() -> None:
    given = {"hostvars": {"n1": {"look": 1}, "n2": {}}}
    assert of_each_host(given, ["n1"], "look") == {"n1": 1}
    with pytest.raises(PlanError, match="n2 lack the fact look"):
        of_each_host(given, ["n1", "n2"], "look")
