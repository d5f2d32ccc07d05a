"""The script alone under a real Slurm, around stand-ins for Ray and vLLM; those are in the flow."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.clone import wait_until
from tests.slurm.lab import EVERY, SlurmLab
from tests.slurm.person import Person
from tests.slurm.script import Script, owned
from tests.slurm.standins import make

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def environment(slurm_site: SlurmLab) -> Path:
    place = slurm_site.home("ann") / "stand-in"
    if not place.exists():
        make(place)
    return place


@pytest.fixture(scope="module")
def ann(slurm_site: SlurmLab, environment: Path) -> Person:
    person = Person(slurm_site, "ann", "r1")
    person.variables |= {
        "ray_join_silence_seconds": 60,
        "slurm_environment": str(slurm_site.inside(environment)),
        "engines": [
            {
                "name": "chat",
                "model": str(slurm_site.inside(environment)),
                "served_name": "chat",
                "layout": {"pipeline": 2},
                "nodes": 2,
                "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
            }
        ],
    }
    owned(person, environment)
    return person


@pytest.fixture
def script(ann: Person, environment: Path) -> Iterator[Script]:
    made = Script(ann)
    made.path.unlink(missing_ok=True)
    said = made.make()
    assert said.returncode == 0, said.stdout + said.stderr
    yield made
    for mark in environment.glob("die-*"):
        mark.unlink()
    if made.job:
        ann.lab.run("ann", "scancel", made.job, check=False)
        made.ended()


def test_it_answers_and_its_end_leaves_logs_alone(script: Script) -> None:
    script.submit()
    told = script.endpoint(600)
    assert "Paris" in script.ask(told)
    assert script.ask(told, with_key=False) == "401"
    assert told["job"] == script.job
    assert told["until"]
    assert f"ann@{script.lab.login}" in told["from_a_laptop"]
    assert set(script.modes().values()) == {"700", "600"}
    key = (script.directory / "api_key").read_text().strip()
    token = (script.directory / "ray_token").read_text().strip()
    for host in script.lab.computes:
        shown = script.lab.root(host, "ps", "-e", "-o", "args=")
        assert key not in shown
        assert token not in shown
    assert key not in script.output
    script.lab.run("ann", "scancel", script.job)
    assert script.ended() == "CANCELLED"
    assert script.left() == []
    assert [one.name for one in script.directory.iterdir()] == ["logs"]
    first, second = script.lab.computes
    logs = {one.name for one in (script.directory / "logs").iterdir()}
    assert logs >= {
        f"{first}-chat-ray.log",
        f"{second}-chat-ray.log",
        f"{first}-chat-serve.log",
        f"{first}-ray-session",
        f"{second}-ray-session",
    }


@pytest.mark.soak
def test_shared_memory_of_others_of_the_user_stays(script: Script) -> None:
    first = script.lab.computes[0]
    older, used = "/dev/shm/psm_older", "/dev/shm/psm_used"  # noqa: S108
    script.person.on(first, "touch", older)
    script.submit()
    script.endpoint(600)
    hold = (
        f"import mmap, time; held = open('{used}', 'w+b'); held.truncate(9)\n"
        "mapped = mmap.mmap(held.fileno(), 9); print('held', flush=True); time.sleep(600)"
    )
    container = script.lab.lab.record.host(first).container
    words = ["podman", "exec", "--user", "ann", container, "python3", "-c", hold]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        script.lab.run("ann", "scancel", script.job)
        assert script.ended() == "CANCELLED"
        assert set(script.files()) == {f"{first}: {one}" for one in (older, used)}
        script.lab.root(first, "pkill", "-u", "ann", "python3")
    script.lab.root(first, "rm", older, used)


def test_its_time_being_over_ends_it_in_order(script: Script) -> None:
    script.submit()
    script.endpoint(600)
    # As Slurm itself does some time before.
    script.lab.run("ann", "scancel", "--batch", "--signal=TERM", script.job)
    assert script.ended() == "COMPLETED"
    assert "ending: servers first" in script.output
    assert script.left() == []


@pytest.mark.soak
def test_put_back_into_the_queue_it_starts_anew(script: Script) -> None:
    script.submit()
    script.endpoint(600)
    key = (script.directory / "api_key").read_text()
    script.lab.root(script.lab.login, "scontrol", "requeue", script.job)
    # Slurm keeps a job that was requeued from its nodes for a while; ours to end.
    wait_until(lambda: script.state == "PENDING", 60, "the requeue", EVERY)
    assert script.left() == []
    script.lab.root(script.lab.login, "scontrol", "update", f"jobid={script.job}", "starttime=now")
    told = script.endpoint(600)
    assert (script.directory / "api_key").read_text() != key
    assert "Paris" in script.ask(told)


@pytest.mark.soak
def test_devices_that_ray_does_not_count_are_told(script: Script) -> None:
    text = script.path.read_text()
    assert text.count("--num-gpus=1") == 2
    # The second is the worker's.
    script.path.write_text("--num-gpus=0".join(text.rsplit("--num-gpus=1", 1)))
    second = script.lab.computes[1]
    script.submit()
    assert script.ended(600) == "FAILED"
    assert "Ray counts 1 of 2 devices, missing 10." in script.output
    assert "nothing new for 60 s" in script.output
    assert "begins" in (script.directory / "logs" / f"{second}-chat-ray.log").read_text()


@pytest.mark.soak
def test_a_process_that_dies_ends_the_wait_with_the_end_of_its_log(
    script: Script, environment: Path
) -> None:
    second = script.lab.computes[1]
    (environment / f"die-ray-{second}").touch()
    script.submit()
    assert script.ended() == "FAILED"
    assert f"FAILED: {second}-chat-ray has ended, exit status 3" in script.output
    assert "no device is left for me" in script.output
    assert script.left() == []


def test_a_server_that_dies_while_it_serves_ends_the_job(script: Script, environment: Path) -> None:
    script.submit()
    script.endpoint(600)
    first = script.lab.computes[0]
    number = script.person.on(first, "cat", f"/tmp/vllm-{script.job}/pids/chat-serve")  # noqa: S108
    script.person.on(first, "kill", "-KILL", number.strip())
    assert script.ended() == "FAILED"
    assert f"{first}-chat-serve has ended" in script.output
    assert not (script.directory / "endpoint.json").exists()
    assert script.left() == []


@pytest.mark.soak
def test_a_file_that_says_something_else_is_kept_unless_forced(script: Script) -> None:
    again = script.make()
    assert "nothing changed" in again.stdout
    script.path.write_text("mine")
    refused = script.make("--check")
    assert refused.returncode == 2
    assert "expected no such file, or one that says the same" in " ".join(refused.stdout.split())
    assert script.path.read_text() == "mine"
    assert script.make("--force").returncode == 0
    assert script.path.read_text().startswith("#!/bin/bash")
