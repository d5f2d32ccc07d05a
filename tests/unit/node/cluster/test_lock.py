from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.cluster import lock

Module = Callable[..., dict[str, Any]]
OTHER = {"run": "other", "holder": {"user": "ada", "host": "bastion", "pid": 7}, "since": 0.0}


def held(since: float) -> lock.Lock:
    return {**OTHER, "since": since, "renewed": since}


@pytest.mark.parametrize(
    ("holder", "dead", "verdict"),
    [
        (None, [], "free"),
        ({"run": "me", "renewed": 0}, [], "mine"),
        # However long ago it was renewed: a download of hours renews nothing.
        (held(0), [], "held"),
        (held(0), ["other"], "stale"),
        (held(0), ["another"], "held"),
    ],
)
def test_who_may_take_a_lock(holder: Any, dead: list[str], verdict: str) -> None:
    assert lock.verdict(holder, "me", dead) == verdict


@pytest.mark.parametrize("text", ["", "{", "[]", '{"who": "me"}', '"run"'])
def test_what_is_no_lock_is_held_by_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock.json"
    assert lock.read(path) is None
    path.write_text(text)
    assert lock.read(path) is None


def race(path: str, number: int, start: Any, won: Any) -> None:
    start.wait()
    if lock.take(Path(path), {"run": number}):
        won.put(number)


def test_exactly_one_of_many_takes_a_free_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    context = multiprocessing.get_context("fork")
    start, won = context.Barrier(8), context.Queue()
    racers = [context.Process(target=race, args=(str(path), n, start, won)) for n in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert lock.read(path) == {"run": won.get(timeout=60)}
    assert won.empty()
    assert os.listdir(tmp_path) == ["lock.json"]  # nobody left a temporary file


def call(run_module: Module, directory: Path, run: str = "me", **more: Any) -> dict[str, Any]:
    check = more.pop("check", False)
    return run_module(
        "cluster_lock", {"cluster_dir": str(directory), "run": run, **more}, [], check=check
    )


def test_a_run_takes_renews_and_frees(run_module: Module, tmp_path: Path) -> None:
    first = call(run_module, tmp_path, holder={"user": "ada"})["lock"]
    assert first["run"] == "me" and first["holder"] == {"user": "ada"}
    again = call(run_module, tmp_path)
    assert not again["changed"]
    assert again["lock"]["since"] == first["since"]
    assert again["lock"]["renewed"] > first["renewed"]
    assert call(run_module, tmp_path, state="free")["lock"] == {}
    assert not (tmp_path / "lock.json").exists()


def test_a_second_run_is_told_who_holds_the_cluster_and_for_how_long(
    run_module: Module, tmp_path: Path
) -> None:
    lock.write(tmp_path / "lock.json", held(time.time() - 130))
    for check in (False, True):
        result = call(run_module, tmp_path, check=check)
        assert result["failed"] and result["lock"]["run"] == "other"
        assert result["msg"] == (
            "another run holds this cluster: other by ada@bastion (process 7), for 2 min"
        )
        assert result["fix"].endswith("-e break_lock=true")
    assert call(run_module, tmp_path, state="free")["lock"]["run"] == "other"  # it is not ours


@pytest.mark.parametrize("how", ["dead_runs", "force"])
def test_a_lock_is_taken_over_from_the_dead_and_by_force(
    run_module: Module, tmp_path: Path, how: str
) -> None:
    lock.write(tmp_path / "lock.json", held(time.time() - 1))
    more = {"dead_runs": {"dead_runs": ["other"]}, "force": {"force": True}}.get(how, {})
    assert call(run_module, tmp_path, check=True, **more)["lock"]["run"] == "other"
    assert call(run_module, tmp_path, **more)["lock"]["run"] == "me"


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_half_a_lock_of_a_host_that_lost_power_does_not_block_for_ever(
    run_module: Module, tmp_path: Path, text: str
) -> None:
    (tmp_path / "lock.json").write_text(text)
    assert call(run_module, tmp_path)["lock"]["run"] == "me"


def test_a_first_run_holds_the_cluster_before_anything_is_prepared(
    run_module: Module, tmp_path: Path
) -> None:
    assert call(run_module, tmp_path / "none", check=True)["lock"] == {}
    assert not (tmp_path / "none").exists()
    assert call(run_module, tmp_path / "none")["lock"]["run"] == "me"


def test_the_plan_on_the_head_comes_with_the_lock(run_module: Module, tmp_path: Path) -> None:
    assert call(run_module, tmp_path, state="look")["plan"] == {}
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1}))
    assert call(run_module, tmp_path, state="look") == {
        **call(run_module, tmp_path, state="look", check=True),
        "changed": False,
        "lock": {},
        "plan": {"version": 1},
    }
    (tmp_path / "plan.json").write_text("{")
    assert call(run_module, tmp_path, state="look")["plan"] == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what is a stranger's")
def test_without_the_right_to_write_it_is_said_where(
    module_as_nobody: Module, nobodys: Path
) -> None:
    directory = nobodys / "c"
    directory.mkdir(mode=0o755)
    args = {"cluster_dir": str(directory), "run": "me"}
    result = module_as_nobody("cluster_lock", args)
    assert result["failed"] and result["where"] == f"{directory}/lock.json on the head"
    assert "Permission denied" in result["found"] and result["fix"]
    # A lock that this user may not read is somebody's: it is not taken for half a lock.
    os.chown(directory, 65534, 65534)
    lock.write(directory / "lock.json", held(time.time()))
    assert module_as_nobody("cluster_lock", args)["failed"]
    assert (lock.read(directory / "lock.json") or {})["run"] == "other"
