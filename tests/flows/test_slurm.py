"""Nodes of a real Slurm to a correct answer and back, as an unprivileged user of the site."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.standin import ENGINES, MODEL, environment
from tests.slurm.lab import EVERY, USERS, SlurmLab
from tests.slurm.person import ENGINE, Person
from tests.slurm.script import Script
from tests.slurm.settings import GPUS
from vllm_ansible.plan.ports import MOVED_API
from vllm_ansible.slurm.inventory import port_base

from .clone import MINUTE, Ran, wait_until

pytestmark = pytest.mark.lab
# What only real vLLM proves.
REAL = pytest.mark.parametrize("engine", ["vllm"], indirect=True, scope="module")
ASK = """
import sys, urllib.request
key, url, question = open(sys.argv[1]).read().strip(), sys.argv[2], sys.argv[3].encode()
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
print(urllib.request.urlopen(urllib.request.Request(url, question, headers)).read().decode())
"""
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Return what serves."""
    return str(request.param)


@pytest.fixture(scope="module")
def ann(slurm_site: SlurmLab, engine: str) -> Person:
    person = Person(slurm_site, "ann", "r1")
    if engine == "stand-in":
        # On the login node, where its user has everything.
        person.variables |= environment(slurm_site.home("ann") / "engine", slurm_site.inside)
        person.variables["engines"] = [{**ENGINE, "model": MODEL}]
    # Half of them: what a script alone asks for at the same time has room beside it.
    person.variables |= {"slurm_persist_seconds": 30, "slurm_gpus_per_node": GPUS // 2}
    return person


@pytest.fixture(scope="module")
def served(ann: Person) -> Ran:
    ran = ann.run()
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
    # Each time that nothing was asked of a node for longer than the step is kept, another one: on
    # a slow machine, that is oftener.
    times = [datetime.fromisoformat(one["time"]) for one in served.events]
    lasted = (max(times) - min(times)).total_seconds()
    paused = lasted / ann.variables["slurm_persist_seconds"]
    assert highest < len(ann.lab.computes) * (4 + paused), (highest, lasted)


def started(ann: Person, job: str) -> list[str]:
    """Return the steps that slurmctld knows of, the one that holds the nodes included."""
    words = ["squeue", "--noheader", "--steps", f"--jobs={job}", "-o", "%i"]
    said = ann.lab.root(ann.lab.login, *words)
    return [one for one in said.split() if one.partition(".")[2].isdigit()]


def test_a_second_run_changes_nothing(served: Ran, ann: Person) -> None:
    ran = ann.run()
    assert (ran.status, ran.changed) == (0, []), ran.output


def test_the_engine_answers_once_every_step_of_ansible_is_gone(served: Ran, ann: Person) -> None:
    wait_until(lambda: not steps(ann), 600, "steps ended", EVERY)
    assert "Paris" in answer(ann)


@REAL
@pytest.mark.soak
def test_the_engine_still_answers_after_ten_minutes(served: Ran, ann: Person) -> None:
    time.sleep(10 * MINUTE)
    assert "Paris" in answer(ann)


def test_what_is_published_names_everything_a_user_needs(served: Ran, ann: Person) -> None:
    told = ann.endpoint
    assert told["job"] == ann.jobs()[0][0]
    assert told["until"]
    port = port_base(USERS["ann"], ann.cluster) + MOVED_API
    assert told["from_a_laptop"].startswith(f"ssh -N -L {port}:")
    assert told["from_a_laptop"].endswith(f"ann@{ann.lab.login}")
    key = ann.lab.run("ann", "cat", told["api_key_file"]).stdout.strip()
    assert key and key not in json.dumps(told)


@pytest.fixture(scope="module")
def alone(served: Ran, ann: Person) -> Iterator[Script]:
    """Give the script of another cluster, which serves with what the first one has installed."""
    # Memory for two engines at once is more than CI has.
    stopped = ann.run(playbook="playbooks/stop.yml")
    assert stopped.status == 0, stopped.output
    (program,) = (ann.shared_dir / "r1").glob("environments/*/bin/vllm")
    (model,) = (ann.shared_dir / "r1" / "r1-0" / "models").glob("*smollm2*/")
    person = Person(ann.lab, "ann", "alone")
    person.variables |= {
        "slurm_gpus_per_node": GPUS // 2,
        "slurm_environment": str(ann.lab.inside(program.parents[1])),
        "engines": [{**ENGINE, "model": str(ann.lab.inside(model)), "served_name": "smollm2"}],
    }
    script = Script(person)
    said = script.make()
    assert said.returncode == 0, said.stdout + said.stderr
    yield script
    ann.lab.run("ann", "scancel", "--name=vllm-alone-script", check=False)


@pytest.fixture(scope="module")
def before(alone: Script) -> set[str]:
    return set(alone.files())


@REAL
@pytest.mark.soak
def test_the_script_alone_serves_over_two_nodes_to_a_correct_answer(
    alone: Script, before: set[str]
) -> None:
    alone.submit()
    told = alone.endpoint(10 * MINUTE)
    assert "Paris" in alone.ask(told)
    assert alone.ask(told, with_key=False) == "401"
    for host in alone.lab.computes:
        assert any("raylet" in command for command in alone.person.processes(host)), host
        assert (alone.directory / "logs" / f"{host}-chat-ray.log").read_text()


@REAL
@pytest.mark.soak
def test_its_ray_asks_for_the_token_and_nobody_sees_a_secret(alone: Script) -> None:
    dashboard = port_base(USERS["ann"], "alone") + 1
    url = f"http://127.0.0.1:{dashboard}/api/v0/nodes"
    ask = f"import urllib.request as u; print(u.urlopen('{url}'))"
    first = alone.lab.computes[0]
    assert "401" in alone.lab.root(first, "sh", "-c", f'python3 -c "{ask}" 2>&1 || true')
    assert set(alone.modes().values()) == {"700", "600"}
    secrets = [(alone.directory / name).read_text().strip() for name in ("api_key", "ray_token")]
    texts = [alone.output, *(log.read_text() for log in (alone.directory / "logs").glob("*.log"))]
    texts += [alone.lab.root(host, "ps", "-e", "-o", "args=") for host in alone.lab.computes]
    assert not [text for text in texts for secret in secrets if secret in text]


@REAL
@pytest.mark.soak
def test_its_end_leaves_logs_and_nothing_else(alone: Script, ann: Person, before: set[str]) -> None:
    held = {host: ann.processes(host) for host in ann.lab.computes}
    assert any("raylet" in one for host in held for one in held[host])
    ann.lab.run("ann", "scancel", alone.job)
    assert alone.ended() == "CANCELLED"
    for host in ann.lab.computes:
        left = ann.processes(host)
        assert not [one for one in left if "ray" in one or "bin/vllm" in one], left
    # The allocation of the first cluster still has its own.
    assert set(alone.files()) <= before
    assert [one.name for one in alone.directory.iterdir()] == ["logs"]
    assert list((alone.directory / "logs").glob("*-ray-session/worker*"))


def test_teardown_leaves_nothing_of_the_users(served: Ran, ann: Person) -> None:
    ran = ann.run("-e", "teardown_everything=true", playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert ann.jobs("PENDING,RUNNING") == []
    for host in ann.lab.computes:
        assert ann.processes(host) == []
        where = str(Path(ann.run_dir).parent)
        assert ann.on(host, "find", where, "-maxdepth", "1", "-user", "ann") == ""
    assert not (ann.shared_dir / "r1").exists()
