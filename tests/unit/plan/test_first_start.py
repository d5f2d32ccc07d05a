"""An engine that does not answer after its first start climbs its ladder within the run."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.process import process
from vllm_ansible.node.watchdog import ladder as kept_ladder
from vllm_ansible.plan import first_start, ladder
from vllm_ansible.plan.decision import Decision, decide
from vllm_ansible.record.diagnosis.points import points

from .test_processes import HOSTS, planned, processes

PLAN = planned({"name": "a", "executor": "mp", "vllm_args": {"compilation_config": {"mode": 0}}})
ENGINES = [one.to_dict() for one in PLAN.engines]
SILENT = {"ready": {}, "unready": {"a": {}}, "silent": ["a"], "wrong": []}
FAULT = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


def decided(looks: Any = None, found: Any = None) -> dict[str, Any]:
    wanted = processes(PLAN)
    if found:
        wanted = ladder.begun(wanted, {"n1": {"ladder": found}}, PLAN.engines, HOSTS)
    decision: Decision = decide(wanted, looks or {}, ["a"], False)
    return decision.to_dict(list(HOSTS))


def site(**more: Any) -> first_start.Site:
    given = {"hosts": list(HOSTS.values()), "head": "n1", "provider": "", "most": 3}
    return first_start.Site(**{**given, "lines": points(), **more})  # type: ignore[arg-type]


def climbs(
    found: Any = None, logs: str = "", verdicts: Any = None, decision: Any = None, **more: Any
) -> dict[str, dict[str, Any]]:
    return first_start.climbs(
        ENGINES,
        verdicts or SILENT,
        decision or decided(),
        found or {},
        {"a": logs},
        site(**more),
        1.0,
    )


def kept(chosen: dict[str, Any], ready: Any = (), current: bool = True) -> dict[str, Any]:
    """Return what processes_info tells of the head after the choice was written down."""
    engines = first_start.document({}, chosen, ready)["engines"]
    return {name: {**one, "current": current} for name, one in engines.items()}


def test_an_engine_that_hangs_until_it_is_eager_serves_on_its_third_start() -> None:
    first = climbs()["a"]
    assert first["rung"] == "graphs" and first["steps"][0]["argv"][-2] == "--compilation-config"
    second = climbs(kept({"a": first}))["a"]
    (step,) = second["steps"]
    assert second["rung"] == "eager" and step["argv"][-1] == "--enforce-eager"
    # Alone, not on top of the rung before.
    assert tuple(step["argv"][:-1]) == processes(PLAN)["n1"][0].argv and step["host"] == "n1"
    assert climbs(kept({"a": second})) == {}
    # What is kept is what a restart of the watchdog and the next run read.
    helped = kept({"a": second}, ready=["a"])
    record = {"engine": "a", "running": True, "digest": process.digest(process.spec(step))}
    wanted = ladder.begun(processes(PLAN), {"n1": {"ladder": helped}}, PLAN.engines, HOSTS)
    assert decide(wanted, {"n1": {"a-serve": record}}, ["a"], False).steps == ()
    assert kept_ladder.of_kept(helped["a"]).words == ("--enforce-eager",)
    assert first_start.rows({"a": second}) == [
        "a has not answered and is started again with --enforce-eager, for unanswered; "
        f"cost: {second['cost']}"
    ]


def test_a_line_of_the_log_points_to_a_rung_of_an_engine_that_ended() -> None:
    ended = {**SILENT, "silent": []}
    assert climbs(logs="all is well", verdicts=ended) == {}
    assert climbs(logs=FAULT, verdicts=ended)["a"]["rung"] == "attention"


def running(looks_digest: str) -> dict[str, Any]:
    return {"n1": {"a-serve": {"engine": "a", "running": True, "digest": looks_digest}}}


@pytest.mark.parametrize(
    "more",
    [
        {"most": 0},
        {"head": "n2"},
        {"provider": "slurm"},
        {"verdicts": {**SILENT, "wrong": ["a"]}},
        # It was running before this run, which has not started it.
        {"decision": decided(running(processes(PLAN)["n1"][0].digest))},
    ],
)
def test_it_is_not_started_again(more: dict[str, Any]) -> None:
    assert climbs(**more) == {}


def test_no_more_often_than_allowed_and_not_from_the_rung_that_has_helped() -> None:
    first = {"a": climbs()["a"]}
    assert climbs(kept(first), most=1) == {}
    helped = kept(first, ready=["a"])
    assert climbs(helped, decision=decided(found=helped)) == {}


def test_all_that_did_not_answer_have_a_rung_or_none_is_started_again() -> None:
    both = {**SILENT, "unready": {"a": {}, "b": {}}}
    assert climbs(verdicts=both) == {}


def test_what_does_not_count_any_more_is_removed_and_what_counts_is_kept() -> None:
    first = {"a": climbs()["a"]}
    gone = kept(first, current=False)
    assert first_start.document(gone, {}, ["a"])["engines"] == {}
    other = {**gone["a"], "helped": True}
    found = first_start.document({"b": other}, first, [])["engines"]
    assert (found["a"]["helped"], found["b"]["helped"]) == (False, True)
    assert not {"current", "steps"} & (found["a"].keys() | found["b"].keys())
