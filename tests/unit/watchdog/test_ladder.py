"""The ladder: an engine that hangs until it is eager serves on the third start, and stays so."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from vllm_ansible.node.process import process
from vllm_ansible.node.process.process import Spec
from vllm_ansible.node.watchdog import ladder, restart
from vllm_ansible.node.watchdog.ladder import AGAIN, Point, Rung
from vllm_ansible.plan import ladder as planned
from vllm_ansible.record.diagnosis.points import points

from .test_restart import EMULATOR, Head, head, running

__all__ = ["head", "running"]

ENGINE: dict[str, Any] = {
    **{"name": "r1", "hosts": ["n1"], "arguments": ["--max-model-len", "512"], "environment": {}},
    **{"ranks": [{"rank": 0, "host": "n1", "device": 0}], "estimate": {}},
}
HOSTS = {"n1": {"name": "n1", "accelerator": "nvidia", "accelerator_name": "H200"}}
HANGS = "--hangs-without=--enforce-eager"


def rungs_of(engine: dict[str, Any]) -> list[dict[str, Any]]:
    return planned.rungs(engine, points())


def start(head: Head, *more: str) -> bool:
    words = [sys.executable, str(EMULATOR), "--port", str(head.port), "--ranks", "1"]
    return bool(head.manage("started", *words, HANGS, *more)["changed"])


def command(head: Head) -> list[str]:
    return list((process.read_json(head.files.record) or {})["argv"])


def test_the_third_start_of_an_engine_that_hangs_until_it_is_eager_serves(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart, "ANSWER_SECONDS", 0.5)
    start(head)
    rungs = rungs_of(ENGINE)
    engine = {"rungs": rungs, "hardware": planned.hardware(ENGINE, HOSTS)}
    restarts = head.restarts(engine=engine, start_seconds=1, most=3)
    head.find("hung")
    for rung, helped in (("again", False), ("graphs", False), ("eager", True)):
        if rung == "eager":
            # A busy machine takes its time; it does not hang any more.
            restarts = head.restarts(engine=engine, start_seconds=120, most=3)
        restarts.look()
        entry = head.kept()["restarts"][-1]
        assert (entry["rung"], entry["helped"]) == (rung, helped)
        head.findings.write_text(head.findings.read_text().replace("hung", "past"))
    assert [one["kind"] for one in head.kept()["restarts"]] == ["hung", "unanswered", "unanswered"]
    assert command(head)[-1] == "--enforce-eager"
    kept = ladder.shown(str(head.cluster_dir))["r1"]
    assert kept["helped"] and kept["current"] and kept["why"] == "unanswered"
    # What a run decides for the cold start to come: the same process, so nothing changes.
    head.manage("stopped")
    assert start(head, *kept["words"])
    assert not start(head, *kept["words"])
    # And the next failure begins there.
    head.find("hung")
    restarts = head.restarts(engine=engine, within_seconds=0.0, most=9)
    restarts.look()
    assert head.kept()["restarts"][-1]["rung"] == "eager"
    assert command(head).count("--enforce-eager") == 1


def test_what_the_host_had_first_keeps_no_engine_that_hangs_from_its_next_rung(
    head: Head,
) -> None:
    rung = Rung("eager", "--enforce-eager", "half the speed", ("--enforce-eager",), kinds=("hung",))
    restarts = head.restarts(engine={"rungs": [ladder.asdict(rung)]}, mode="ask")
    engine = restarts.settings.engines[0]
    specs = restarts._planned(engine, {})
    again = ladder.entry(ladder.AGAIN, "hung", specs, engine.hardware, ["again"], 0.0)
    ladder.write(str(head.cluster_dir), "r1", again)
    ended = time.time() - 60
    restarts._note(engine, {"at": ended - 1, "kind": "hung", "ended_at": ended, "helped": True})
    head.find("hung")
    state = json.loads(head.findings.read_text())
    memory = {**state["findings"][0], "kind": "memory", "found": "the memory of h1 is used up"}
    head.findings.write_text(json.dumps({**state, "findings": [memory, *state["findings"]]}))
    restarts.look()
    said = "it would be started again with --enforce-eager (cost: half the speed)"
    assert head.kept()["held"] == f"{said}: the memory of h1 is used up"


def test_ask_says_what_the_next_start_changes_and_costs(head: Head) -> None:
    rung = Rung("eager", "--enforce-eager", "half the speed", ("--enforce-eager",), kinds=("hung",))
    engine = {"rungs": [ladder.asdict(rung)]}
    restarts = head.restarts(engine=engine, mode="ask")
    head.find("hung")
    restarts.look()
    assert head.kept()["held"] == "it would be started again: it is hung"
    spec = process.spec(process.read_json(head.files.record) or {})
    kept = ladder.entry(AGAIN, "hung", {"r1-serve": spec}, "H200 x1", ["again"], 0.0)
    ladder.write(str(head.cluster_dir), "r1", kept)
    now = {"at": restart.time.time(), "ended_at": restart.time.time(), "kind": "hung"}
    restarts._note(restarts.settings.engines[0], {**now, "helped": False, "logs": ""})
    head.find("hung", named_at=restart.time.time() + 1)
    restarts.look()
    assert head.kept()["held"] == (
        "it would be started again with --enforce-eager (cost: half the speed): it is hung"
    )


SPEC = Spec(("vllm", "serve", "m"), {"A": "1"}, {"environment": "e1", "api_key": "k1"})
WAYS = [
    Rung("nvls", "N=0", "some", environment={"A": "0", "N": "0"}, points=(Point("n", "NVLS"),)),
    Rung("graphs", "-g", "more", ("-g", "{}"), kinds=("hung",)),
    Rung("eager", "-e", "most", ("-e",), kinds=("hung",)),
]


def taken(kept: dict[str, Any], kind: str, text: str = "", contained: bool = False) -> str:
    return ladder.choose(WAYS, kept, kind, text, contained)[0].name


def test_a_rung_is_taken_only_where_something_points_to_it_and_once() -> None:
    assert taken({}, "hung") == "again"
    once: dict[str, Any] = {"rung": "again", "tried": ["again"]}
    assert taken(once, "ended") == "again", "an engine that was killed keeps its graphs"
    assert taken(once, "hung") == "graphs"
    assert taken(once, "hung", "transport/nvls.cc NVLS failed") == "nvls"
    # A container has its variables in its command.
    assert taken(once, "hung", "NVLS", contained=True) == "graphs"
    assert taken({"rung": "graphs", "tried": ["again", "graphs"]}, "hung") == "eager"
    every = ["again", "graphs", "eager"]
    assert taken({"rung": "eager", "tried": every}, "hung") == "eager"
    # Without a ladder each restart is as the start before.
    known = ladder.entry(WAYS[2], "hung", {}, "H", ["eager"], 0.0)
    assert ladder.choose([], known, "hung", "", contained=False)[0].words == ("-e",)
    # After it has worked for long, what is kept is tried first.
    assert taken({"rung": "eager", "tried": []}, "hung") == "eager"


def test_a_failure_goes_on_where_the_restart_before_did_not_help_for_long() -> None:
    last = {"ended_at": 100.0, "helped": True, "kind": "hung"}
    assert ladder.goes_on(last, "hung", 60, 150)
    assert not ladder.goes_on(last, "hung", 60, 161)
    assert not ladder.goes_on(last, "ended", 60, 150)
    assert ladder.goes_on({**last, "helped": False}, "ended", 60, 150)
    assert not ladder.goes_on({}, "hung", 60, 150)


@pytest.mark.parametrize("rung", WAYS)
def test_what_a_rung_adds_is_taken_off_again(rung: Rung) -> None:
    kept = ladder.entry(rung, "hung", {"s": SPEC}, "H", ["again"], 0.0)
    on = ladder.climbed(rung, SPEC)
    assert on != SPEC and ladder.descended(on, kept) == SPEC
    assert ladder.descended(SPEC, kept) == SPEC


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"depends": {"environment": "e1", "api_key": "k2"}}, True),
        ({"depends": {"environment": "e2", "api_key": "k1"}}, False),
        ({"argv": ("vllm", "serve", "m", "--max-num-seqs", "4")}, False),
    ],
)
def test_what_helped_holds_for_this_command_and_these_packages(
    change: dict[str, Any], holds: bool
) -> None:
    kept = ladder.entry(WAYS[2], "hung", {"s": SPEC}, "H200 x1", ["again"], 0.0)
    spec = {"s": replace(SPEC, **change)}
    assert ladder.holds(kept, spec, "H200 x1") is holds
    assert not ladder.holds(kept, spec, "H100 x1")


def test_each_point_is_a_known_line_and_each_rung_says_what_it_costs() -> None:
    spread = {**ENGINE, "hosts": ["n1", "n2"]}
    found = [ladder.rung(one) for one in rungs_of(spread)]
    assert [one.name for one in found][-1] == "eager" and "sockets" in [one.name for one in found]
    for one in found:
        assert one.cost and (one.kinds or one.points)
        assert all(re.compile(point.regex) for point in one.points)
    by_name = {one.name: one for one in found}
    line = "NCCL WARN NET/IB : Unable to open device mlx5_3"
    assert by_name["sockets"].applies("ended", line) == "ib-device-closed"
    assert not by_name["sockets"].applies("hung", "all is well")
    # What hosts do not share needs no transport, and what is eager has no graphs.
    eager = {**ENGINE, "arguments": ["--enforce-eager"]}
    names = {one["name"] for one in rungs_of(eager)}
    assert not names & {"sockets", "graphs", "compilation", "eager"}


def test_the_cost_of_eager_is_the_planners() -> None:
    estimate = {"output_tokens_per_second": [800, 1000, 1300], "concurrency": 64}
    estimate |= {"eager_tokens_per_second": [200, 250, 400]}
    (rung,) = [one for one in rungs_of({**ENGINE, "estimate": estimate}) if one["name"] == "eager"]
    assert rung["cost"] == "250 in place of 1,000 tokens/s at 64 requests are expected (25%)"


def test_a_rung_keeps_what_the_engines_own_compilation_says_besides() -> None:
    own = ["--compilation-config", '{"cudagraph_capture_sizes": [1, 2]}']
    rungs = rungs_of({**ENGINE, "arguments": own})
    (graphs,) = [one for one in rungs if one["name"] == "graphs"]
    assert graphs["words"][1] == '{"cudagraph_capture_sizes": [1, 2], "cudagraph_mode": "NONE"}'
