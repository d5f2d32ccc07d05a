"""Data-parallel ranks as one group: started together, restarted together, removed together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vllm_ansible.plan.decision import Decision, decide
from vllm_ansible.plan.processes import ProcessSpec
from vllm_ansible.problem import PlanError

from .test_decision import record


def rank(number: int, *, change: str = "", alone: bool = False) -> ProcessSpec:
    name, host = f"a-serve-{number}", f"n{number // 2 + 1}"
    argv = (name, *([change] if change else []))
    return ProcessSpec(host, name, "a", "serve", argv, {}, {}, {}, None, alone)


RANKS = [rank(number) for number in range(4)]
ALONE = [rank(number, alone=True) for number in range(4)]


def look(ranks: list[ProcessSpec], dead: tuple[int, ...] = ()) -> dict[str, dict[str, Any]]:
    hosts: dict[str, dict[str, Any]] = {"n1": {}, "n2": {}}
    for number, one in enumerate(ranks):
        state = {"exit_status": 137} if number in dead else {}
        hosts[one.host][one.name] = record(one, number not in dead, **state)
    return hosts


def made(
    ranks: list[ProcessSpec], looks: dict[str, dict[str, Any]], allow: bool = False
) -> Decision:
    wanted = {host: [one for one in ranks if one.host == host] for host in ("n1", "n2")}
    return decide(wanted, looks, ["a"], allow)


def steps(decision: Decision) -> list[tuple[str, str]]:
    return [(step.phase, step.name) for step in decision.steps]


EVERY = [(phase, one.name) for phase in ("stop_serve", "start_serve") for one in RANKS]


def test_nothing_runs_and_all_ranks_start_in_one_step() -> None:
    decision = made(RANKS, {"n1": {}, "n2": {}})
    assert steps(decision) == [("start_serve", one.name) for one in RANKS]
    assert not made(RANKS, look(RANKS)).steps


def test_a_dead_rank_restarts_the_group_without_asking_since_nothing_is_served() -> None:
    decision = made(RANKS, look(RANKS, dead=(1,)))
    assert steps(decision) == [one for one in EVERY if one != ("stop_serve", "a-serve-1")]
    (engine,) = decision.engines
    assert engine.action == "restart"
    assert not engine.disrupts
    assert engine.reasons == ("n1: a-serve-1 was killed by signal 9 (SIGKILL)",)


def test_one_rank_that_differs_is_a_restart_of_the_group_and_only_when_allowed() -> None:
    looks = look([RANKS[0], rank(1, change="--old"), *RANKS[2:]])
    with pytest.raises(PlanError, match="engine a is serving and would restart as a whole"):
        made(RANKS, looks)
    assert steps(made(RANKS, looks, allow=True)) == EVERY


def test_a_group_half_started_by_a_killed_run_starts_anew() -> None:
    """None of them serves, since they wait for the one that is missing: nobody is asked."""
    looks = look(RANKS)
    del looks["n2"]["a-serve-3"]
    decision = made(RANKS, looks)
    assert [step for step in steps(decision) if step[0] == "start_serve"] == EVERY[4:]


def test_of_ranks_that_have_nothing_in_common_a_dead_one_starts_alone() -> None:
    decision = made(ALONE, look(ALONE, dead=(1,)))
    assert steps(decision) == [("start_serve", "a-serve-1")]
    assert decision.engines[0].action == "start"


def test_of_ranks_that_have_nothing_in_common_any_that_runs_is_serving() -> None:
    changed = [replace(one, argv=("other",)) for one in ALONE]
    with pytest.raises(PlanError, match="is serving"):
        made(changed, look(ALONE, dead=(0,)))
    assert made(changed, look(ALONE, dead=(0,)), allow=True).engines[0].action == "restart"


def test_ranks_that_are_planned_no_more_go_with_their_records() -> None:
    single = ProcessSpec("n1", "a-serve", "a", "serve", ("serve",), {}, {}, {}, None)
    decision = decide({"n1": [single], "n2": []}, look(RANKS), ["a"], True)
    stops = [step for step in decision.steps if step.phase == "stop_serve"]
    assert {step.name for step in stops} == {one.name for one in RANKS}
    assert all(step.forget for step in stops)
    assert steps(decision)[-1] == ("start_serve", "a-serve")
    gone = decide({}, look(RANKS), [], True)
    assert {step.to_dict()["state"] for step in gone.steps} == {"absent"}
    assert len(gone.steps) == 4
