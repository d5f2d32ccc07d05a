"""Which engines are restarted, who answers meanwhile, and what is refused before anything."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan
from vllm_ansible.upgrade import turns
from vllm_ansible.upgrade.turns import next_plan

DOOR = {"door": {"engine": "", "running": True}}


def plan(**models: str) -> dict[str, Any]:
    """Return a plan of engines by their names, each with what it is called."""
    return {
        "engines": [
            {
                "name": name,
                "served_name": model,
                "layout": {"data": 1, "tensor": 1, "pipeline": 1},
                "hosts": ["n1"],
                "ranks": [{"host": "n1", "device": 0}],
                "ports": {"api": 8000, "worker_first": 20001},
            }
            for name, model in models.items()
        ]
    }


def looks(*names: str, door: bool = True, dead: tuple[str, ...] = ()) -> dict[str, Any]:
    engines = {
        f"{name}-serve": {"engine": name, "running": name not in dead} for name in (*names, *dead)
    }
    return {"n1": engines | (DOOR if door else {})}


def decided(*names: str, action: str = "restart") -> dict[str, Any]:
    return {name: {"action": action, "reasons": ["n1: 8 becomes 6"]} for name in names}


def found(before: Any, after: Any, changed: Any, seen: Any, **more: Any) -> Any:
    return turns.turns(before, after, changed, seen, **more)


def words(rows: list[dict[str, Any]]) -> list[str]:
    return [one["what"] for one in rows if not one["ok"]]


def test_replicas_take_turns_in_the_order_of_the_plan_and_answer_for_each_other() -> None:
    both = plan(a="m", b="m", other="n")
    seen = looks("a", "b", "other")
    first, second = found(both, both, decided("b", "a"), seen)
    assert (first["engine"], first["peers"], first["waits"]) == ("a", ["b"], False)
    assert (second["engine"], second["peers"], second["waits"]) == ("b", ["a"], False)
    assert first["servers"] == ["a-router", "a-serve"]
    assert not first["moves"]
    assert words(turns.measurements([first, second], both, both, seen, interrupt=False)) == []
    assert turns.summary([first, second], both, both, check=True) == (
        "would upgrade a, while b answers (n1: 8 becomes 6); then b, while a answers "
        "(n1: 8 becomes 6)"
    )


def test_who_lacks_an_adapter_does_not_answer_for_one_that_has_it() -> None:
    both = plan(a="m", b="m")
    both["engines"][0]["arguments"] = ["--lora-modules", "law=/a"]
    first, second = found(both, both, decided("a", "b"), looks("a", "b"))
    assert (first["engine"], first["peers"], first["waits"]) == ("a", [], True)
    assert (second["engine"], second["peers"], second["waits"]) == ("b", ["a"], False)


@pytest.mark.parametrize(
    ("before", "seen", "why"),
    [
        (plan(a="m"), looks("a"), "no other engine of this model"),
        (plan(a="m", b="n"), looks("a", "b"), "no other engine of this model"),
        (plan(a="m", b="m"), looks("a", "b", door=False), "no door before the engines"),
    ],
    ids=["one engine", "another model", "without a door"],
)
def test_one_for_whom_nobody_answers_waits_for_a_word(
    before: dict[str, Any], seen: dict[str, Any], why: str
) -> None:
    (turn,) = found(before, before, decided("a"), seen)
    assert turn["waits"]
    (refused,) = [
        one for one in turns.measurements([turn], before, before, seen, False) if not one["ok"]
    ]
    assert refused["found"] == why
    assert "upgrade_interrupt=true" in refused["fix"]
    assert words(turns.measurements([turn], before, before, seen, interrupt=True)) == []


def test_a_name_that_goes_with_its_last_engine_is_an_interruption() -> None:
    before, after = plan(a="old", b="old"), plan(a="new", b="new")
    first, second = found(before, after, decided("a", "b"), looks("a", "b"))
    assert (first["peers"], first["waits"], first["moves"]) == (["b"], False, True)
    # By then the first one answers for the new name alone.
    assert (second["peers"], second["waits"]) == ([], True)


def test_nothing_that_differs_is_said_and_new_engines_are_left_to_the_site() -> None:
    before, after = plan(a="m"), plan(a="m", more="m")
    changed = decided("a", action="none") | decided("more", action="start")
    assert found(before, after, changed, looks("a")) == []
    assert turns.summary([], before, after, check=False) == (
        "nothing to upgrade: every engine runs as the inventory says; left to site.yml: more (new)"
    )


def test_an_engine_that_is_down_or_gone_is_seen_to_first() -> None:
    before, after = plan(a="m", b="m", c="m"), plan(a="m", b="m")
    seen = looks("a", "c", dead=("b",))
    rows = found(before, after, decided("a"), seen)
    # One that is down answers for nobody.
    assert rows[0]["peers"] == ["c"]
    assert words(turns.measurements(rows, before, after, seen, interrupt=True)) == [
        "engine b runs",
        "engine c still in the inventory",
    ]


def test_an_upgrade_that_was_begun_comes_first_however_its_engine_is() -> None:
    both = plan(a="m", b="m")
    for action, seen in (("none", looks("a", "b")), ("start", looks("a", dead=("b",)))):
        changed = decided("a") | decided("b", action=action)
        first, second = found(both, both, changed, seen, interrupted="b")
        assert (first["engine"], first["again"]) == ("b", True)
        assert (second["engine"], second["peers"]) == ("a", ["b"])
        assert words(turns.measurements([first, second], both, both, seen, False)) == []
    # What an earlier inventory had begun is nothing of this one.
    assert found(both, both, decided("a"), looks("a", "b"), interrupted="z")[0]["engine"] == "a"


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_engine_of_a_set_is_not_upgraded_by_itself(when: str) -> None:
    before, after = plan(a="m", b="m"), plan(a="m", b="m")
    chosen = before if when == "before" else after
    for one, role in zip(chosen["engines"], ("prefill", "decode"), strict=True):
        one["role"] = role
    seen = looks("a", "b")
    (turn,) = found(before, after, decided("a"), seen)
    # The other one of its set answers nobody.
    assert turn["peers"] == ([] if when == "before" else ["b"])
    (refused,) = [
        one for one in turns.measurements([turn], before, after, seen, True) if not one["ok"]
    ]
    assert refused["found"] == "it is of a set of prefill and decode"
    assert refused["fix"] == "site.yml -e allow_disruption=true restarts the set"


def test_the_fix_of_an_engine_that_is_down_is_no_dead_end() -> None:
    both = plan(a="m", b="m")
    (row,) = [
        one
        for one in turns.measurements([], both, both, looks("a", dead=("b",)), False)
        if not one["ok"]
    ]
    assert "playbooks/start.yml" in row["fix"]
    assert "with the inventory as it was" in row["fix"]


def test_the_servers_of_a_plan_are_those_of_all_its_engines() -> None:
    assert turns.all_door_servers(plan(a="m", b="n")) == [
        *("a-router", "a-serve", "b-router", "b-serve")
    ]


def test_a_plan_changes_by_one_engine_at_a_time() -> None:
    def made(seqs: int) -> dict[str, Any]:
        engines = [
            {"name": name, "model": f"/models/{name}", "vllm_args": {"max_num_seqs": seqs}}
            for name in ("a", "b")
        ]
        capacities = [Capacity.whole("n1", "cpu", 2, None)]
        return make_plan("c", parse_engines(engines), capacities).to_dict()

    def seats(plan: dict[str, Any]) -> list[str]:
        return [
            one["arguments"][one["arguments"].index("--max-num-seqs") + 1]
            for one in plan["engines"]
        ]

    before, after = made(8), made(6)
    half = next_plan(before, after, "b")
    assert seats(half) == ["8", "6"]
    assert half["digest"] not in (before["digest"], after["digest"])
    assert next_plan(half, after, "a") == after
