"""What may be said of data ranks in an inventory, and the one sentence for what may not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from vllm_ansible.plan.engines import Engine, parse_engines
from vllm_ansible.plan.plan import digest
from vllm_ansible.plan.planned_engine import plain
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError


def engine(**more: Any) -> Engine:
    (parsed,) = parse_engines([{"name": "a", "model": "o/m", **more}])
    return parsed


def refusal(**more: Any) -> Any:
    with pytest.raises(PlanError) as refused:
        engine(**more)
    (problem,) = refused.value.problems
    return problem


def test_a_layout_with_data_says_its_executor_by_itself() -> None:
    parsed = engine(layout={"data": 8, "tensor": 4})
    assert parsed.layout == Layout(tensor=4, pipeline=1, data=8)
    assert parsed.layout.world_size == 32
    assert parsed.executor == "dp"
    assert engine(layout={"data": 2}, executor="dp").executor == "dp"
    assert engine(layout={"data": 1, "tensor": 2}).executor == "ray"
    assert engine(executor="dp").layout is None


@pytest.mark.parametrize(
    ("more", "where", "expected"),
    [
        ({"layout": {"data": 2, "pipeline": 2}}, "layout", "no pipeline beside data"),
        ({"layout": {"data": 2}, "executor": "ray"}, "executor", "dp, or none"),
        ({"layout": {"data": 2}, "executor": "mp"}, "executor", "dp, or none"),
        ({"layout": {"tensor": 2}, "executor": "dp"}, "layout", "N at least 2 for executor dp"),
        ({"layout": {"data": 81}}, "layout", "at most 80 data ranks"),
        ({"layout": {"data": 0}}, "layout", "each at least 1"),
        ({"layout": {"data": "2"}}, "layout", "each at least 1"),
        (
            {"layout": {"data": 2}, "environment": {"TOPS_VISIBLE_DEVICES": "0"}},
            "environment",
            "gives each rank its own value",
        ),
        (
            {"layout": {"data": 2}, "environment": {"VLLM_DP_RANK": 1}},
            "environment",
            "gives each rank its own value",
        ),
        ({"vllm_args": {"data_parallel_size": 2}}, "vllm_args", "the engine's own"),
        ({"vllm_args": {"data-parallel-rank": 1}}, "vllm_args", "the engine's own"),
    ],
)
def test_a_contradiction_is_refused_in_one_sentence(
    more: dict[str, Any], where: str, expected: str
) -> None:
    problem = refusal(**more)
    assert problem.where == f"engines[0] a.{where}"
    assert expected in problem.expected
    assert problem.found
    assert problem.fix


def test_an_engine_without_data_keeps_the_digest_it_had() -> None:
    """A kept plan of before there was data must not be taken for another one."""
    parsed = engine(layout={"tensor": 2})
    assert plain(parsed)["layout"] == {"tensor": 2, "pipeline": 1}
    assert plain(engine())["layout"] is None
    asked = asdict(engine())
    del asked["executor_given"], asked["front"]
    assert digest(plain(engine())) == digest(asked)
    assert digest(plain(engine())) == digest(plain(engine(executor="ray")))
    assert plain(engine(layout={"data": 2}))["layout"]["data"] == 2
