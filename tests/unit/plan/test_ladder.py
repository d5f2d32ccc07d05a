"""A run starts an engine as its last restarts made it answer, for as long as it is the same."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from vllm_ansible.node.process import process
from vllm_ansible.node.watchdog import ladder as kept_ladder
from vllm_ansible.node.watchdog.ladder import Rung
from vllm_ansible.plan import ladder
from vllm_ansible.plan.decision import decide

from .test_processes import HOSTS, planned, processes

EAGER = Rung("eager", "--enforce-eager", "half the speed", ("--enforce-eager",))
PLAN = planned({"name": "a", "executor": "mp", "vllm_args": {"compilation_config": {"mode": 0}}})
WANTED = processes(PLAN)
((SERVE,),) = [[one for one in WANTED["n1"] if one.name == "a-serve"]]


def kept(helped: bool = True, current: bool = True, **changes: Any) -> dict[str, Any]:
    """Return what processes_info tells of the head."""
    specs = {"a-serve": process.spec(asdict(SERVE))}
    hardware = ladder.hardware(PLAN.engines[0].to_dict(), HOSTS)
    entry = kept_ladder.entry(EAGER, "hung", specs, hardware, ["again", "eager"], 0.0)
    return {"ladder": {"a": {**entry, "helped": helped, "current": current, **changes}}}


def starts(look: dict[str, Any], **more: Any) -> bool:
    """Tell whether the engine starts eagerly."""
    wanted = processes(PLAN, **more)
    begun = ladder.begun(wanted, {"n1": look}, PLAN.engines, HOSTS)
    assert begun.keys() == wanted.keys()
    return begun["n1"][0].argv[-1] == "--enforce-eager"


def test_the_next_start_begins_on_the_rung_that_helped() -> None:
    assert starts(kept())
    assert not starts({"processes": {}})


def test_one_that_did_not_help_counts_only_while_it_runs() -> None:
    running = {"processes": {"a-serve": {"running": True, "engine": "a"}}}
    assert starts({**kept(helped=False), **running})
    assert not starts(kept(helped=False))
    assert not starts({**kept(helped=False, current=False), **running})


@pytest.mark.parametrize("changes", [{"hardware": "H100 x1"}, {"planned": {"a-serve": "0"}}])
def test_other_hardware_and_another_command_give_it_up(changes: dict[str, Any]) -> None:
    assert not starts(kept(**changes))


def test_other_packages_give_it_up_and_a_new_key_does_not() -> None:
    assert starts(kept(), fingerprints={"a": {"api_key": "k2"}})
    assert not starts(kept(), fingerprints={"a": {"weights": "others"}})


def test_a_run_finds_an_engine_on_its_rung_as_wanted() -> None:
    begun = ladder.begun(WANTED, {"n1": kept()}, PLAN.engines, HOSTS)
    record = {"engine": "a", "running": True, "digest": begun["n1"][0].digest}
    looks = {"n1": {"a-serve": record}}
    assert decide(begun, looks, ["a"], False).steps == ()
    # As planned it would differ, and be refused: it serves.
    with pytest.raises(Exception, match="command of a-serve changed"):
        decide(WANTED, {"n1": {"a-serve": {**record, "command": "x"}}}, ["a"], False)


def test_status_says_what_an_engine_starts_with_why_and_how_to_end_it() -> None:
    (row,) = ladder.rows(kept())
    assert row == (
        "ladder: a: starts with --enforce-eager since 1970-01-01 00:00:00 UTC, for hung, which "
        "helped; cost: half the speed; site.yml with -e forget_rungs=true and "
        "-e allow_disruption=true ends it"
    )
    assert ladder.rows(kept(rung="again")) == ladder.rows(kept(current=False)) == []
