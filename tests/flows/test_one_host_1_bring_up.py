"""From nothing to an answer on this machine, with ansible-playbook killed in every long stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .clone import MINUTE, Ran, Running
from .conftest import Site
from .processes import look, of_cluster

pytestmark = pytest.mark.engine
STAGES = ["validate", "prepare", "install", "weights", "plan", "cluster", "serve", "benchmark"]


def test_a_check_of_a_fresh_host_announces_every_change_and_makes_none(site: Site) -> None:
    ran = site.run("--check")
    assert ran.status == 0, ran.output
    assert set(STAGES) <= {name for name, ok in ran.stages.items() if ok}
    for task in ("Make the tools environment", "Start to build", "Start to fetch"):
        assert f"would change: {task} (here)" in ran.output
    for task in ("Start Ray heads", "Start the engines"):
        assert f"would change: {task} (here)" in ran.output
    assert "check mode: nothing was changed" in ran.output
    assert not site.cluster_dir.exists()
    assert not site.run_dir.exists()
    assert not site.state.exists()
    assert of_cluster(site.cluster_dir) == []


def progress(stage: str) -> Any:
    return lambda event: event["event"] == "progress" and event["stage"] == stage


def done(task: str) -> Any:
    return lambda event: (
        event["event"] == "task"
        and event["task"].endswith(task)
        and event["status"] in ("ok", "changed")
    )


def kill_when(running: Running, seen: Any, what: str) -> None:
    running.wait_for(seen, what, 20 * MINUTE)
    running.kill()


def test_a_run_killed_while_installing_leaves_the_build_going_on(site: Site) -> None:
    kill_when(site.start(), progress("install"), "progress of the build")
    status = site.task("environment")
    assert status["state"] in ("running", "done")
    assert (site.cluster_dir / "lock.json").exists(), "a killed run cannot let go of the cluster"


def test_a_run_killed_while_fetching_had_taken_the_build_up(site: Site) -> None:
    before = site.task("environment")["started"]
    running = site.start()
    kill_when(running, progress("weights"), "progress of the weights")
    ran = Ran(-9, running.console.read_text(), running.runs)
    assert ran.stages["install"]
    assert site.task("environment")["started"] == before, "the build was started twice"


def test_a_run_killed_after_ray_was_started_had_taken_the_weights_up(site: Site) -> None:
    before = site.task("weights")["started"]
    running = site.start()
    kill_when(running, done("Start Ray heads"), "start of Ray")
    ran = Ran(-9, running.console.read_text(), running.runs)
    assert ran.stages["weights"]
    assert site.task("weights")["started"] == before, "the weights were fetched twice"


def test_a_run_killed_while_loading_had_kept_the_ray_that_was_started(site: Site) -> None:
    before = site.process("chat-ray")
    running = site.start()
    kill_when(running, progress("serve"), "progress of an engine")
    ran = Ran(-9, running.console.read_text(), running.runs)
    assert ran.stages["cluster"]
    assert site.process("chat-ray")["instance"] == before["instance"]


def test_the_run_after_four_killed_ones_ends_with_the_answer(site: Site) -> None:
    before = {name: site.process(name)["instance"] for name in ("chat-ray", "chat-serve")}
    ran = site.run()
    assert ran.status == 0, ran.output
    assert set(STAGES) <= {name for name, ok in ran.stages.items() if ok}
    after = {name: site.process(name)["instance"] for name in before}
    assert after == before, "an engine that was loading was started again"
    (evidence,) = ran.evidence("serve")
    answers = {one["name"]: one["answer"] for one in evidence["values"]["engines"]}
    assert "Paris" in answers["chat"]
    assert answers["experts"]
    assert not (site.cluster_dir / "lock.json").exists()


def test_what_a_killed_run_left_on_the_controller_is_gone(site: Site) -> None:
    """Workers of a killed ansible-playbook end by themselves, and none of them polls on."""
    for record in sorted(Path(site.clone.directory, "runs").glob("*/killed")):
        for pid, started in json.loads(record.read_text()):
            found = look(pid)
            assert found is None or found.started != started, found
