"""What disturbs a served cluster, what a person then reads, and that the engines serve on."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .clone import MINUTE
from .conftest import EXPERTS, Site
from .processes import identities

pytestmark = pytest.mark.engine
# The engines that are there, and one that cannot come up.
THIRD = {**EXPERTS, "name": "third", "port": 8262}
# The stages before these do not know of it, and each run of them takes as long as these.
FROM_WEIGHTS = ("--tags", "weights,plan,cluster,serve")


@pytest.fixture
def untouched(served: Site) -> Iterator[Site]:
    """Hold each disturbance to this: whatever it did, both engines are the processes they were."""
    before = {name: served.process(name) for name in ("chat-ray", "chat-serve", "experts-serve")}
    pids = {(one["process"]["pid"], str(one["process"]["start_time"])) for one in before.values()}
    yield served
    assert {name: served.process(name) for name in before} == before
    assert pids <= identities(served.cluster_dir)


def third(site: Site, **changes: Any) -> Path:
    """Return an inventory of the same cluster with a third engine."""
    engines = [*site.variables["engines"], {**THIRD, **changes}]
    return site.clone.inventory("third", site.hosts, **{**site.variables, "engines": engines})


def damaged_model(site: Site, directory: Path) -> Path:
    """Return a copy of a model that serves, in which a test then breaks something."""
    (model,) = site.cluster_dir.glob("models/random--deepseek-v3")
    return Path(shutil.copytree(model, directory / "model"))


def test_of_two_runs_at_once_the_second_is_told_who_holds_the_cluster(untouched: Site) -> None:
    first = untouched.start()
    lock = untouched.cluster_dir / "lock.json"
    first.wait_for(lambda _: lock.exists(), "lock", 10 * MINUTE)
    # However long the second one takes to come so far, the first has not ended by then.
    first.process.send_signal(signal.SIGSTOP)
    try:
        failure = untouched.run("--tags", "serve").failure
    finally:
        first.process.send_signal(signal.SIGCONT)
    result = first.result()
    assert result.status == 0, result.output
    run = result.directory.name
    holder = f"{run} by {getpass.getuser()}@{socket.gethostname()} (process {first.process.pid})"
    assert failure["stage"] == "serve"
    assert failure["msg"].startswith(f"another run holds this cluster: {holder}")
    assert failure["expected"] == "no other run on this cluster"
    assert failure["where"] == f"{lock} on the head"
    assert "break_lock=true" in failure["fix"]
    assert not lock.exists()


def test_a_port_that_a_stranger_holds_is_named_with_the_stranger(untouched: Site) -> None:
    with socket.create_server(("127.0.0.1", THIRD["port"])):
        failure = untouched.clone.run(third(untouched), *FROM_WEIGHTS).failure
    assert (failure["stage"], failure["host"]) == ("cluster", "here")
    assert f"check failed: port {THIRD['port']} for third-serve (api)" in failure["msg"]
    assert failure["expected"] == "no other process listens there"
    assert f"(process {os.getpid()}" in failure["found"]
    assert failure["where"] == f"here:{THIRD['port']}"
    assert "`port` of the engine" in failure["fix"]


def test_a_model_that_lacks_a_shard_is_refused_before_an_engine_starts(
    untouched: Site, tmp_path: Path
) -> None:
    model = damaged_model(untouched, tmp_path)
    (shard,) = model.glob("*.safetensors")
    shard.rename(model / "model-00001-of-00002.safetensors")
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    index["weight_map"]["b"] = "model-00002-of-00002.safetensors"
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    failure = untouched.clone.run(third(untouched, model=str(model))).failure
    assert (failure["stage"], failure["host"]) == ("weights", "here")
    assert "model-00002-of-00002.safetensors" in failure["found"]
    assert str(model) in failure["where"]
    assert failure["expected"]
    assert failure["fix"]


def test_an_engine_that_dies_while_it_loads_is_told_by_its_first_failing_line(
    untouched: Site, tmp_path: Path
) -> None:
    model = damaged_model(untouched, tmp_path)
    config = json.loads((model / "config.json").read_text())
    # Every file is whole; they do not fit together, which nobody but the engine can see.
    config["intermediate_size"] *= 2
    (model / "config.json").write_text(json.dumps(config))
    ran = untouched.clone.run(third(untouched, model=str(model)), *FROM_WEIGHTS)
    failure = ran.failure
    assert (failure["stage"], failure["host"]) == ("serve", "here")
    assert failure["msg"].startswith("No answer from third: third-serve ended with exit status 1")
    assert failure["expected"].startswith("a correct completion from third at http://127.0.0.1:")
    assert "Error" in failure["found"]
    assert "third-serve" in failure["where"]
    assert failure["fix"]
    kept = ran.directory / "logs" / "here-third-serve.log"
    assert failure["found"].split("(")[0].strip() in kept.read_text()


def test_an_engine_that_is_planned_no_more_is_forgotten_and_nothing_else(untouched: Site) -> None:
    ran = untouched.run(*FROM_WEIGHTS)
    assert ran.status == 0, ran.output
    assert not list((untouched.cluster_dir / "processes").glob("third-*"))
    assert set(ran.stages.values()) == {True}


def test_a_change_that_would_interrupt_an_engine_is_refused_by_name(untouched: Site) -> None:
    chat, experts = untouched.variables["engines"]
    shorter = {**chat, "vllm_args": {**chat["vllm_args"], "max_model_len": 1024}}
    variables = {**untouched.variables, "engines": [shorter, experts]}
    shorter_here = untouched.clone.inventory("shorter", untouched.hosts, **variables)
    ran = untouched.clone.run(shorter_here, *FROM_WEIGHTS)
    failure = ran.failure
    assert failure["stage"] == "plan"
    assert ran.changed == [] and "changed=0" in ran.output
    assert "engine chat is serving and would restart as a whole" in failure["msg"]
    assert "2048 becomes 1024" in failure["msg"]
    assert "allow_disruption=true" in failure["fix"]
    # What was refused is not what a later run keeps to.
    again = untouched.run("--tags", "plan,serve")
    assert again.status == 0, again.output
    assert again.changed == []
