from __future__ import annotations

import itertools
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.plan.decision import PHASES, Decision, decide, of_engines
from vllm_ansible.plan.processes import ProcessSpec
from vllm_ansible.problem import PlanError


def spec(host: str, part: str, *, change: str = "") -> ProcessSpec:
    name = "a-serve" if part == "serve" else "a-ray"
    argv = (name, *([change] if change else []))
    return ProcessSpec(host, name, "a", part, argv, {}, {}, {}, None)


WANTED = {
    "n1": (spec("n1", "head"), spec("n1", "serve")),
    "n2": (spec("n2", "worker"),),
}
ALL = [one for specs in WANTED.values() for one in specs]


def record(one: ProcessSpec, running: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "engine": one.engine,
        "running": running,
        "digest": one.digest,
        "command": shlex.join(one.argv),
        **more,
    }


def look(*records: tuple[ProcessSpec, bool]) -> dict[str, dict[str, Any]]:
    hosts: dict[str, dict[str, Any]] = {"n1": {}, "n2": {}}
    for one, running in records:
        hosts[one.host][one.name] = record(one, running)
    return hosts


def told(made: Decision) -> list[tuple[str, str, str]]:
    return [(step.phase, step.host, step.to_dict()["state"]) for step in made.steps]


RESTART = [
    ("stop_serve", "n1", "stopped"),
    ("stop_workers", "n2", "stopped"),
    ("stop_heads", "n1", "stopped"),
    ("start_heads", "n1", "started"),
    ("start_workers", "n2", "started"),
    ("start_serve", "n1", "started"),
]
HEAD, SERVE, WORKER = WANTED["n1"][0], WANTED["n1"][1], WANTED["n2"][0]


def test_an_engine_that_runs_as_wanted_is_left_alone() -> None:
    made = decide(WANTED, look(*((one, True) for one in ALL)), ["a"], False)
    assert (made.engines[0].action, made.steps) == ("none", ())


def test_an_engine_never_started_starts_head_then_workers_then_server() -> None:
    made = decide(WANTED, look(), ["a"], False)
    assert told(made) == RESTART[3:]
    assert made.engines[0].action == "start"


def test_a_change_restarts_the_whole_group_in_order_when_allowed() -> None:
    running = look(*((one, True) for one in ALL))
    wanted = {**WANTED, "n1": (HEAD, spec("n1", "serve", change="--max-model-len=64"))}
    made = decide(wanted, running, ["a"], True)
    assert told(made) == RESTART
    with pytest.raises(PlanError) as refusal:
        decide(wanted, running, ["a"], False)
    for word in ("engine a", "--max-model-len=64", "-e allow_disruption=true", "n1"):
        assert word in str(refusal.value)


def test_an_interrupted_start_goes_on_without_touching_what_runs() -> None:
    made = decide(WANTED, look((HEAD, True)), ["a"], False)
    assert told(made) == RESTART[4:]
    made = decide(WANTED, look((HEAD, True), (WORKER, True)), ["a"], False)
    assert told(made) == RESTART[5:]


def test_a_dead_worker_restarts_its_group_without_being_asked() -> None:
    made = decide(WANTED, look((HEAD, True), (WORKER, False), (SERVE, True)), ["a"], False)
    assert made.engines[0].action == "restart"
    assert told(made) == [step for step in RESTART if step[:2] != ("stop_workers", "n2")]


def test_workers_do_not_outlive_their_head() -> None:
    made = decide(WANTED, look((HEAD, False), (WORKER, True)), ["a"], False)
    assert made.engines[0].action == "restart"
    assert ("stop_workers", "n2", "stopped") in told(made)


def test_a_changed_ray_node_whose_server_is_dead_interrupts_nobody() -> None:
    wanted = {**WANTED, "n2": (spec("n2", "worker", change="x"),)}
    made = decide(wanted, look((HEAD, True), (WORKER, True), (SERVE, False)), ["a"], False)
    assert made.engines[0].action == "restart"


def test_a_host_the_engine_left_is_cleared() -> None:
    running = look(*((one, True) for one in ALL))
    running["n3"] = {"a-ray": record(WORKER)}
    made = decide(WANTED, running, ["a"], True)
    assert ("stop_workers", "n3", "absent") in told(made)


def test_what_was_stopped_on_a_host_the_engine_left_is_forgotten_at_its_start() -> None:
    # Taken for a dead part of the engine, it would let the next change restart it unasked.
    stopped = {**look(), "n3": {"a-ray": record(WORKER, running=False)}}
    made = decide(WANTED, stopped, ["a"], False)
    assert made.engines[0].action == "start"
    assert told(made) == [("stop_workers", "n3", "absent"), *RESTART[3:]]


def test_an_engine_that_serves_is_not_widened_or_moved_without_being_asked() -> None:
    running = look((HEAD, True), (SERVE, True))
    with pytest.raises(PlanError, match="never started"):
        decide(
            {"n1": (HEAD, spec("n1", "serve", change="x")), "n2": (WORKER,)}, running, ["a"], False
        )
    with pytest.raises(PlanError, match="no longer wanted"):
        decide({"n3": (spec("n3", "head"), spec("n3", "serve"))}, running, ["a"], False)


def test_an_engine_no_longer_planned_is_removed_only_when_allowed() -> None:
    running = look(*((one, True) for one in ALL))
    made = decide({"n1": (), "n2": ()}, running, [], True)
    assert [step.to_dict()["state"] for step in made.steps] == ["absent"] * 3
    assert made.steps[0].phase == "stop_serve"
    with pytest.raises(PlanError, match="removed"):
        decide({"n1": (), "n2": ()}, running, [], False)


def test_what_is_left_of_a_removed_engine_is_cleared_without_being_asked() -> None:
    made = decide({"n1": (), "n2": ()}, look((HEAD, True), (SERVE, False)), [], False)
    assert made.engines[0].action == "remove"


def test_an_engine_this_run_leaves_out_is_not_taken_for_removed() -> None:
    assert decide({"n1": ()}, look((HEAD, True)), ["a"], False).steps == ()


def test_roles_find_every_phase_on_every_host() -> None:
    told_to = decide(WANTED, look(), ["a"], False).to_dict(["n1", "n2", "n3"])["hosts"]
    assert [list(phases) for phases in told_to.values()] == [list(PHASES)] * 3
    start = told_to["n1"]["start_heads"][0]
    assert (start["name"], start["state"], start["argv"]) == ("a-ray", "started", ["a-ray"])


@given(st.lists(st.sampled_from(["absent", "dead", "runs", "differs"]), min_size=3, max_size=3))
def test_following_the_steps_always_ends_as_wanted(states: list[str]) -> None:
    hosts: dict[str, dict[str, Any]] = {"n1": {}, "n2": {}}
    for one, state in zip(ALL, states, strict=True):
        if state != "absent":
            digest = {"digest": "another"} if state == "differs" else {}
            hosts[one.host][one.name] = record(one, state != "dead", **digest)
    made = decide(WANTED, hosts, ["a"], True)
    phases = [PHASES.index(step.phase) for step in made.steps]
    assert phases == sorted(phases)
    for step in made.steps:
        if step.spec:
            assert not hosts[step.host].get(step.name, {}).get("running"), "started while running"
            hosts[step.host][step.name] = record(step.spec)
        else:
            hosts[step.host][step.name]["running"] = False
    assert decide(WANTED, hosts, ["a"], False).steps == ()
    serving = states[ALL.index(SERVE)] in ("runs", "differs") and "dead" not in states
    assert made.engines[0].disrupts == (serving and set(states) != {"runs"})


def test_every_pair_of_phases_has_one_order() -> None:
    for first, second in itertools.pairwise(RESTART):
        assert PHASES.index(first[0]) < PHASES.index(second[0])


def test_a_decision_on_some_engines_leaves_the_others() -> None:
    changed = {"n1": (HEAD, spec("n1", "serve", change="x")), "n2": (WORKER,)}
    made = decide(changed, look(*[(one, True) for one in ALL]), ["a"], allow_disruption=True)
    assert told(made) == RESTART
    assert of_engines(made, ["a"]) == made
    nothing = of_engines(made, [])
    assert nothing.steps == ()
    assert [(one.engine, one.action, one.disrupts) for one in nothing.engines] == [
        ("a", "none", False)
    ]
