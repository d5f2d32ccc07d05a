"""What is kept of an engine before its upgrade gives it back exactly what it ran as."""

from __future__ import annotations

import base64
import json
from tempfile import TemporaryDirectory
from typing import Any

from vllm_ansible.node.process import process
from vllm_ansible.plan.process_spec import ProcessSpec
from vllm_ansible.upgrade import former

PLAN = {"engines": [{"name": "a", "hosts": ["n1", "n2"]}, {"name": "b", "hosts": ["n1"]}]}


def spec(host: str, name: str, part: str, change: str = "") -> ProcessSpec:
    environment = {"HOST": host, **({"CHANGED": change} if change else {})}
    return ProcessSpec(
        host,
        name,
        "a",
        part,
        (f"/env/bin/{name}", "--max-num-seqs", change or "8"),
        environment,
        {"model": {"fingerprint": "f1"}},
        {"nofile": "65536"},
        "vllm",
        cleanup=("docker", "rm", name),
    )


HEAD, WORKER = spec("n1", "a-ray", "head"), spec("n2", "a-ray", "worker")
SERVE = spec("n1", "a-serve", "serve")
ALL = (HEAD, WORKER, SERVE)


def record(one: ProcessSpec) -> dict[str, Any]:
    """Return what managed_process records of a start."""
    wanted = process.spec(one.to_dict())
    labels = {"cluster": "c", "engine": one.engine}
    with TemporaryDirectory() as directory:
        files = process.Files(f"{directory}/cluster", one.name)
        # The user of a record need not exist on this machine.
        bare = process.new_record(process.Spec(wanted.argv), files, labels, "supervisord")
    parts = {
        name: getattr(wanted, name)
        for name in ("environment", "depends", "limits", "user", "cleanup", "restart")
    }
    return {**bare, **parts, "digest": process.digest(wanted)}


def read(*specs: ProcessSpec) -> dict[str, Any]:
    """Return what slurp registers on each host."""
    found: dict[str, Any] = {"n1": {"results": []}, "n2": {"results": []}}
    for one in specs:
        text = json.dumps(record(one)).encode()
        found[one.host]["results"].append({"content": base64.b64encode(text).decode()})
    return found


def looks(*specs: ProcessSpec, dead: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"n1": {"door": {"engine": "", "running": True}}, "n2": {}}
    for one in specs:
        running = one.name not in dead
        found[one.host][one.name] = {"engine": "a", "running": running, "digest": one.digest}
    return found


def state(benchmark: str = "") -> dict[str, Any]:
    made = former.kept("a", PLAN, read(*ALL), benchmark)
    # As the file on the head gives it back.
    return former.begun(json.dumps(made))


def steps(decision: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (phase, host, f"{one['name']} {one['state']}")
        for host, phases in decision["hosts"].items()
        for phase, found in phases.items()
        for one in found
    ]


def test_what_is_started_again_has_the_digest_that_ran() -> None:
    decision = former.restored(state(), looks(*(spec(o.host, o.name, o.part, "6") for o in ALL)))
    assert decision["differs"] and decision["starts"]
    assert {name: one["action"] for name, one in decision["engines"].items()} == {
        "a": "restart",
        "b": "none",
    }
    started = {
        (host, one["name"]): one
        for host, phases in decision["hosts"].items()
        for found in phases.values()
        for one in found
        if one["state"] == "started"
    }
    for one in ALL:
        step = started[one.host, one.name]
        assert process.digest(process.spec(step)) == one.digest
        assert (step["user"], step["engine"]) == ("vllm", "a")
    assert steps(decision) == [
        ("stop_serve", "n1", "a-serve stopped"),
        ("stop_heads", "n1", "a-ray stopped"),
        ("start_heads", "n1", "a-ray started"),
        ("start_serve", "n1", "a-serve started"),
        ("stop_workers", "n2", "a-ray stopped"),
        ("start_workers", "n2", "a-ray started"),
    ]


def test_what_runs_as_before_is_left_alone_and_what_came_is_forgotten() -> None:
    untouched = former.restored(state(), looks(*ALL))
    assert not untouched["differs"] and steps(untouched) == []
    assert untouched["engines"]["a"]["action"] == "none"
    more = spec("n2", "a-serve-1", "serve")
    decision = former.restored(state(), looks(*ALL, more, dead=("a-serve",)))
    assert ("stop_serve", "n2", "a-serve-1 absent") in steps(decision)
    assert ("stop_serve", "n1", "a-serve stopped") not in steps(decision)
    assert ("start_serve", "n1", "a-serve started") in steps(decision)


def test_a_file_of_another_program_is_no_upgrade_that_was_begun() -> None:
    assert former.begun("") == {}
    assert former.begun('{"version": 99, "engine": "a"}') == {}


def figures(rate: float, compiled: str = "") -> str:
    settings = {"requests": 8, "concurrency": 2, "input_tokens": 64, "output_tokens": 32}
    return json.dumps(
        {
            "fingerprint": {"settings": settings},
            "figures": {"output_tokens_per_second": rate, "compiled": compiled},
        }
    )


def test_a_rate_below_its_limit_fails_and_one_at_it_passes() -> None:
    def ok(now: float) -> bool:
        (one,) = former.rate_measurements("a", figures(100), figures(now), 0.9, "n1")
        return bool(one["ok"])

    assert [ok(now) for now in (89.9, 90.0, 120.0)] == [False, True, True]
    assert former.load(figures(1))["input_tokens"] == 64
    assert former.load("") == {}


def test_a_rate_during_which_vllm_compiled_is_not_judged() -> None:
    slow, compiled = figures(1), figures(1, "n1: a line of its log")
    for before, after in ((figures(100), compiled), (compiled, slow)):
        (one,) = former.rate_measurements("a", before, after, 0.9, "n1")
        assert one["ok"]
        assert one["found"] == "vLLM compiled meanwhile, not judged"


def test_a_rate_that_was_measured_from_another_host_is_not_judged() -> None:
    elsewhere = json.loads(figures(100))
    elsewhere["figures"]["generator"] = {"host": "l1", "url": "https://10.0.0.1:9443"}
    (one,) = former.rate_measurements("a", json.dumps(elsewhere), figures(1), 0.9, "n1")
    assert one["ok"]
    assert one["found"] == "its former load came from another host, not judged"


def test_requests_that_do_not_end_are_no_reason_to_cut_them_off() -> None:
    def ok(looked: dict[str, Any]) -> bool:
        (one,) = former.drained(looked, "a", 600, "n1")
        return bool(one["ok"])

    # No server of this name at the door: it has none there to end.
    assert ok({"servers": [], "requests": 0})
    # None at the door, and one that a router has sent.
    assert not ok({"servers": [{"requests": 0}], "requests": 1})
    assert not ok({"msg": "the door does not answer"})


def test_an_engine_that_the_door_does_not_see_up_is_not_back() -> None:
    def ok(looked: dict[str, Any]) -> bool:
        (one,) = former.back(looked, "a", "n1")
        return bool(one["ok"])

    up = {"name": "a-serve", "up": True, "words": "UP"}
    assert ok({"servers": [up]})
    assert not ok({"servers": [up, {**up, "up": False, "words": "DOWN"}]})
    assert not ok({"servers": []})


def test_of_a_loop_the_item_that_failed_is_said() -> None:
    item = {"failed": True, "msg": "No answer from a", "expected": "an answer", "found": "none"}
    loop = {"failed": True, "msg": "One or more items failed", "results": [{"msg": ""}, item]}
    assert former.failure([{}, loop])["msg"] == "No answer from a"


def test_the_first_failure_is_said_with_what_serves_now() -> None:
    told = former.failure(
        [{}, {"msg": "taken along"}, {"msg": "No answer from a", "expected": "one", "where": "log"}]
    )
    (one,) = former.failed(told, "a")
    assert not one["ok"]
    # What the gate takes, and no more.
    assert set(one) == {"what", "ok", "expected", "found", "where", "fix"}
    assert one["what"].endswith("back and serves. What failed: No answer from a")
    assert (one["expected"], one["found"], one["where"]) == ("one", " (log)", "a")
    (worse,) = former.lost(told, {**told, "msg": "nor this"}, "a", "upgrade.json on n1")
    assert "No answer from a. Then: nor this" in worse["what"]
    assert "upgrade.json on n1" in worse["fix"]
    assert set(worse) == set(one)
    (why,) = former.failed({**told, "cause": "too little memory"}, "a")
    assert why["what"].endswith("No answer from a; cause: too little memory")
    assert former.failure([])["msg"] == ""
