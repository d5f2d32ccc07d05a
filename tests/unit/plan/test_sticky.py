from __future__ import annotations

import pytest

from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan
from vllm_ansible.plan.sticky import plan_of_some_hosts
from vllm_ansible.problem import PlanError

ENGINES = parse_engines([{"name": "a", "model": "o/m"}])
KEPT = make_plan("c", ENGINES, [Capacity.whole("n1", "cpu", 1)])


def test_some_hosts_go_on_with_the_kept_plan() -> None:
    assert plan_of_some_hosts(ENGINES, KEPT, ["n1"]) == KEPT


def test_another_question_moves_no_engine() -> None:
    asked = parse_engines([{"name": "a", "model": "o/m", "probe": {"prompt": "2 + 2?"}}])
    some = plan_of_some_hosts(asked, KEPT, ["n1"])
    every = make_plan("c", asked, [Capacity.whole("n1", "cpu", 1)], KEPT)
    assert some == every
    assert every.engines[0].probe.prompt == "2 + 2?"
    assert every.engines[0].ranks == KEPT.engines[0].ranks


def test_some_hosts_cannot_make_a_first_plan() -> None:
    with pytest.raises(PlanError, match="needs all hosts"):
        plan_of_some_hosts(ENGINES, None, ["n1"])


def test_some_hosts_cannot_change_a_plan() -> None:
    changed = parse_engines([{"name": "a", "model": "o/other"}, {"name": "b", "model": "o/m"}])
    with pytest.raises(PlanError, match="a, b changed"):
        plan_of_some_hosts(changed, KEPT, ["n1"])
