"""Nodes of a real Slurm to a correct answer and back, as an unprivileged user of the site."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.lab import SlurmLab, slurm_lab
from tests.slurm.person import Person

from .clone import MINUTE, Ran, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.engine]
ASK = """
import sys, urllib.request
key, url, question = open(sys.argv[1]).read().strip(), sys.argv[2], sys.argv[3].encode()
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
print(urllib.request.urlopen(urllib.request.Request(url, question, headers)).read().decode())
"""
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def lab(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    with slurm_lab(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(scope="module")
def ann(lab: SlurmLab) -> Person:
    person = Person(lab, "ann", "r1")
    person.variables["slurm_persist_seconds"] = 30
    return person


@pytest.fixture(scope="module")
def served(ann: Person) -> Ran:
    ran = ann.run(seconds=15 * MINUTE)
    assert ran.status == 0, ran.output
    return ran


def steps(ann: Person) -> list[str]:
    """Return the steps that carry bytes to nodes."""
    words = ["squeue", "--noheader", "--steps", "--user=ann", "-o", "%i %j"]
    lines = ann.lab.root(ann.lab.login, *words).splitlines()
    return [number for number, name in map(str.split, lines) if name == "vllm-relay"]


def answer(ann: Person) -> str:
    """Ask the engine from the login node, by what is published and nothing else."""
    told = ann.endpoint
    (engine,) = told["engines"]
    question = {"model": engine["model"], "messages": QUESTION, "temperature": 0}
    words = [told["api_key_file"], f"{engine['url']}/chat/completions", json.dumps(question)]
    said: dict[str, Any] = json.loads(ann.lab.run("ann", "python3", "-c", ASK, *words).stdout)
    return str(said["choices"][0]["message"]["content"])


def test_site_serves_over_two_nodes_to_a_correct_answer(served: Ran, ann: Person) -> None:
    (evidence,) = served.evidence("serve")
    assert "Paris" in evidence["values"]["engines"][0]["answer"]
    for host in ann.lab.computes:
        assert any("raylet" in command for command in ann.processes(host)), host


def test_tasks_share_the_steps_that_carry_them(served: Ran, ann: Person) -> None:
    job = ann.jobs()[0][0]
    highest = max(int(one.partition(".")[2]) for one in started(ann, job))
    # Each time that nothing was asked of a node for longer than the step is kept, another one.
    assert highest * 10 < len(served.of("task")), highest


def started(ann: Person, job: str) -> list[str]:
    """Return the steps that slurmctld knows of, the one that holds the nodes included."""
    words = ["squeue", "--noheader", "--steps", f"--jobs={job}", "-o", "%i"]
    said = ann.lab.root(ann.lab.login, *words)
    return [one for one in said.split() if one.partition(".")[2].isdigit()]


def test_a_second_run_changes_nothing(served: Ran, ann: Person) -> None:
    ran = ann.run()
    assert (ran.status, ran.changed) == (0, []), ran.output


def test_the_engine_answers_once_every_step_of_ansible_is_gone(served: Ran, ann: Person) -> None:
    wait_until(lambda: not steps(ann), 90, "steps ended")
    assert "Paris" in answer(ann)


@pytest.mark.soak
def test_the_engine_still_answers_after_ten_minutes(served: Ran, ann: Person) -> None:
    time.sleep(10 * MINUTE)
    assert "Paris" in answer(ann)


def test_what_is_published_names_everything_a_user_needs(served: Ran, ann: Person) -> None:
    told = ann.endpoint
    assert told["job"] == ann.jobs()[0][0]
    assert told["until"]
    assert told["from_a_laptop"].startswith("ssh -N -L 8000:")
    assert told["from_a_laptop"].endswith(f"ann@{ann.lab.login}")
    key = ann.lab.run("ann", "cat", told["api_key_file"]).stdout.strip()
    assert key and key not in json.dumps(told)


def test_teardown_leaves_nothing_of_the_users(served: Ran, ann: Person) -> None:
    ran = ann.run("-e", "teardown_everything=true", playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert ann.jobs("PENDING,RUNNING") == []
    for host in ann.lab.computes:
        assert ann.processes(host) == []
        where = str(Path(ann.run_dir).parent)
        assert ann.on(host, "find", where, "-maxdepth", "1", "-user", "ann") == ""
    assert not (ann.shared_dir / "r1").exists()
