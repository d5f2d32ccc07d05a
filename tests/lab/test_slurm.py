"""An allocation of a real Slurm: asked for, held, lost, expired, shared and given back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.flows.clone import wait_until
from tests.slurm.lab import EVERY, USERS, SlurmLab
from tests.slurm.person import Person

pytestmark = pytest.mark.lab
OF_ANN = ("-user", "ann")
SLOW_PORT = 18000
PROVISION, TEARDOWN = "playbooks/provision.yml", "playbooks/teardown.yml"


@pytest.fixture
def ann(slurm_site: SlurmLab) -> Iterator[Person]:
    person = Person(slurm_site, "ann", "r1")
    yield person
    slurm_site.run("ann", "scancel", "--user=ann", check=False)
    wait_until(lambda: not person.jobs(), 600, "no job left", EVERY)


def hold(person: Person) -> str:
    """Have the nodes, and return the job's number."""
    ran = person.run(playbook=PROVISION)
    assert ran.status == 0, ran.output
    return str(ran.evidence("allocation")[0]["values"]["job"])


def ask(person: Person, module: str, arguments: str = "") -> str:
    """Run one module on all nodes as the user would."""
    where = person.lab.inside(person.inventory)
    words = [
        "ansible",
        "-i",
        str(where),
        "gpu",
        "-m",
        module,
        *(["-a", arguments] * bool(arguments)),
    ]
    inside = f'cd {person.lab.inside(person.clone)} && exec "$@"'
    return person.lab.run(person.user, "bash", "-c", inside, "-", *words, check=False).stdout


# Tests below begin with an allocation each, which takes a run and its end: what one can show of
# several things is one test.
def test_nodes_are_asked_for_once_reached_without_ssh_and_keep_what_ansible_leaves_running(
    ann: Person,
) -> None:
    first = ann.run(playbook=PROVISION)
    assert first.status == 0, first.output
    assert len(first.evidence("accept")) == 2
    second = ann.run(playbook=PROVISION)
    assert second.changed == []
    ((job, name, _),) = ann.jobs()
    assert name == "vllm-r1"
    assert sorted(ask(ann, "command", "hostname").split()[6::7]) == ann.lab.computes
    # And what a step leaves running dies.
    ask(ann, "shell", "setsid sleep 7777 > /dev/null 2>&1 < /dev/null &")
    step = [f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", "--gres=none"]
    ann.lab.run("ann", "srun", *step, "sh", "-c", "setsid sleep 8888 & sleep 1")
    for host in ann.lab.computes:
        # srun ends with the task, a moment before Slurm has ended what else is in the step.
        wait_until(lambda host=host: "sleep 8888" not in ann.processes(host), 300, "its end", EVERY)
        assert "sleep 7777" in ann.processes(host)


def test_the_sites_own_lines_and_form_of_gpus_are_taken_and_a_bad_line_is_told(
    ann: Person,
) -> None:
    ann.variables |= {"slurm_gpus_per_node": 0, "slurm_gres": "gpu:standin:4"}
    ann.variables["site_setup"] = ["export SITE_SAYS='two words'"]
    job = hold(ann)
    assert "gres:gpu:standin:4" in ann.lab.root(ann.lab.login, "scontrol", "show", "job", job)
    assert (
        ask(ann, "shell", 'echo "$SITE_SAYS; $VLLM_ANSIBLE_SITE"').count("two words; SITE_SAYS")
        == 2
    )
    ann.lab.run("ann", "scancel", "--user=ann")
    wait_until(lambda: not ann.jobs(), 600, "no job left", EVERY)
    ann.variables["site_setup"] = ["echo no such module: cuda/99 >&2; false"]
    failure = ann.run(playbook=PROVISION).failure
    assert "has ended before its nodes could be used" in failure["msg"]
    assert "no such module: cuda/99" in failure["found"]
    assert ann.jobs() == []


@pytest.mark.parametrize(
    ("changes", "words", "cause"),
    [
        ({"slurm_partition": "nosuch"}, "Invalid partition name", "there is no such partition"),
        # Half a minute each, and they differ in Slurm's words alone.
        pytest.param(
            {"slurm_gpus_per_node": 0, "slurm_gres": "gpu:h100:4"},
            "Requested node configuration is not available",
            "no nodes of this partition have all that is asked for together",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            {"slurm_partition": "short", "slurm_time": "1-00:00:00"},
            "Requested time limit is invalid",
            "more than the partition allows",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            {"slurm_nodes": 9},
            "Node count specification invalid",
            "so many nodes",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_refusal_is_told_in_slurms_words_with_its_cause(
    ann: Person, changes: dict[str, object], words: str, cause: str
) -> None:
    ann.variables |= changes
    ran = ann.run(playbook=PROVISION)
    assert words in ran.failure["msg"]
    assert cause in ran.failure["found"]
    assert ran.failure["fix"]
    checked = ann.run("--check", playbook=PROVISION)
    assert words in checked.failure["msg"]
    assert ann.jobs() == []


def test_a_controller_killed_while_it_waits_leaves_one_job_that_the_next_run_takes(
    ann: Person,
) -> None:
    blocker = ["--exclusive", "--nodes=2", "--wrap=sleep 600", "--job-name=other", "--time=30"]
    ann.lab.run("ann", "sbatch", "--output=/dev/null", *blocker)
    process, console, _ = ann.start(playbook=PROVISION)
    wait_until(lambda: "waits: Resources, number 1 in gpu" in console.read_text(), 600, "a wait")
    ann.lab.run("ann", "pkill", "-KILL", "-f", "^[^ ]*python[^ ]* .*ansible-playbook")
    process.wait(300)
    ann.lab.run("ann", "scancel", "--name=other")
    assert hold(ann)
    assert [name for _, name, _ in ann.jobs("PENDING,RUNNING")] == ["vllm-r1"]


@pytest.mark.soak
def test_a_job_that_drained_is_put_back_into_the_queue_waited_for_and_told_of(
    ann: Person,
) -> None:
    ann.variables["slurm_at_end"] = "requeue"
    job = hold(ann)
    # What slurmctld sends before the time is over.
    ann.lab.run("ann", "scancel", "--batch", "--signal=USR1", job)
    # Slurm keeps a job that was requeued from its nodes for two minutes. Shortened, not to nothing:
    # a node refuses a credential of the same second in which it was told to forget the job's.
    wait_until(lambda: ann.jobs()[0][2] == "PENDING", 60, "the requeue", EVERY)
    ann.lab.root(ann.lab.login, "scontrol", "update", f"jobid={job}", "starttime=now+5")
    ran = ann.run(playbook=PROVISION)
    assert ran.status == 0, ran.output
    (told,) = ran.evidence("allocation")
    assert (told["values"]["job"], told["values"]["restarts"]) == (job, 1)
    assert "put back into the queue and started again" in told["summary"]


def test_a_job_whose_time_is_over_is_told_of_and_leaves_nothing_on_its_nodes(ann: Person) -> None:
    ann.variables |= {"slurm_time": "30", "slurm_drain_seconds": 0}
    job = hold(ann)
    ask(ann, "shell", f"mkdir -p {ann.run_dir}; setsid sleep 7777 >/dev/null 2>&1 </dev/null &")
    published = ann.shared_dir / "r1" / "endpoint.json"
    published.write_text("{}")
    shorten(ann, job, minutes=0)
    # Slurm looks once a minute, and half a minute is grace.
    wait_until(lambda: not ann.jobs(), 600, "the end of the job", EVERY)
    assert not published.exists()
    for host in ann.lab.computes:
        assert not [one for one in ann.processes(host) if "sleep" in one or "python" in one]
        assert ann.on(host, "find", str(Path(ann.run_dir).parent), "-maxdepth", "1", *OF_ANN) == ""
    assert f"the cluster {ann.cluster} has no running allocation" in ask(ann, "ping")
    ran = ann.run(playbook=PROVISION)
    assert ran.status == 0, ran.output
    assert f"job {job} has ended: timeout" in ran.evidence("allocation")[0]["summary"]


def test_requests_in_flight_are_answered_before_the_time_is_over(ann: Person) -> None:
    ann.variables["slurm_time"] = "30"
    job = hold(ann)
    own = ann.shared_dir / "r1"
    (own / "endpoint.json").write_text("{}")
    serve(ann)
    wait_until(lambda: {"listens", "follows"} <= set(said(own)), 600, "both there")
    url = f"http://{ann.lab.computes[0]}:{SLOW_PORT}/"
    fetch = f"import urllib.request as r; print(r.urlopen({url!r}, timeout=600).read().decode())"
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ann.lab.run, "ann", "python3", "-c", fetch, seconds=600)
        wait_until(lambda: "asked" in said(own), 600, "a request in flight")
        shorten(ann, job, minutes=4)
        # Within half a minute, for the job drains when 300 s are left.
        wait_until(lambda: "asked to end" in said(own), 600, "the drain")
        # Soon after it was asked to: a server listens for a moment more.
        knock = f"import socket; socket.create_connection(('{ann.lab.computes[0]}', {SLOW_PORT}))"
        knocks = ("ann", "python3", "-c", knock)
        wait_until(
            lambda: "refused" in ann.lab.run(*knocks, check=False).stderr, 120, "a refusal", EVERY
        )
        assert not (own / "endpoint.json").exists()
        looked = ann.run(playbook="playbooks/status.yml")
        assert "it has taken no more requests since" in looked.evidence("allocation")[0]["summary"]
        (own / "go").touch()
        assert answer.result().stdout == "answered\n"
    wait_until(lambda: not ann.jobs(), 600, "the end of the job", EVERY)
    # Supervisor and agent may both ask a process to end.
    told = list(dict.fromkeys(said(own)))
    assert told[-3:] == ["answered", "the server has ended", "the rank has ended"], told
    for host in ann.lab.computes:
        assert ann.processes(host) == []
        assert ann.on(host, "find", str(Path(ann.run_dir).parent), "-maxdepth", "1", *OF_ANN) == ""
    assert not list(own.glob("draining-*"))
    assert said(own, f"slurm-{job}.log")[-1] == "drained"


def serve(person: Person) -> None:
    """Have what stands for a server on the first node, and for a rank of it on the second."""
    beside, where = Path(__file__).parents[1] / "slurm", person.shared_dir / "r1"
    for name, place in {"slow_server.py": where, "slow.yml": person.clone}.items():
        shutil.copy2(beside / name, place)
        os.chown(place / name, USERS[person.user], USERS[person.user])
    given = {
        "slow_program": str(person.lab.inside(where / "slow_server.py")),
        "slow_port": str(SLOW_PORT),
        "slow_run_dir": person.run_dir,
    }
    ran = person.run("-e", json.dumps(given), playbook="slow.yml")
    assert ran.status == 0, ran.output


def said(directory: Path, name: str = "log") -> list[str]:
    """Return the lines of a log that may not be there yet."""
    path = directory / name
    return path.read_text().splitlines() if path.exists() else []


def shorten(person: Person, job: str, minutes: int) -> None:
    """Leave a job so many minutes, and up to one more."""
    asked = ["squeue", "--noheader", "--job", job, "--format=%M"]
    passed = person.lab.root(person.lab.login, *asked).strip().split(":")
    limit = int(passed[-2]) + 1 + minutes
    person.lab.run("ann", "scontrol", "update", f"jobid={job}", f"timelimit={limit}")


def test_two_users_share_nodes_and_teardown_takes_only_its_own(ann: Person) -> None:
    bob = Person(ann.lab, "bob", "r1")
    ann.lab.run("ann", "sbatch", "--output=/dev/null", "--job-name=vllm-r10", "--wrap=sleep 600")
    for person in (ann, bob):
        person.variables["slurm_gpus_per_node"] = 2
    assert hold(ann) != hold(bob)
    ran = ann.run("-e", "teardown_everything=true", playbook=TEARDOWN)
    assert ran.status == 0, ran.output
    assert [name for _, name, _ in ann.jobs("PENDING,RUNNING")] == ["vllm-r10"]
    assert [name for _, name, _ in bob.jobs()] == ["vllm-r1"]
    assert ask(bob, "ping").count("pong") == 2
    assert bob.run(playbook=TEARDOWN).status == 0
    assert bob.jobs("PENDING,RUNNING") == []


def test_a_lost_node_puts_the_job_back_and_the_next_run_waits_for_it(ann: Person) -> None:
    job = hold(ann)
    host = ann.lab.computes[-1]
    ann.lab.root(
        ann.lab.login, "scontrol", "update", f"nodename={host}", "state=down", "reason=test"
    )
    try:
        ran = ann.run("-e", "provision_queue_hours=0.0005", playbook=PROVISION)
        # Put back into the queue, in which nothing has room for it now.
        assert f"job {job} waits" in ran.failure["found"]
    finally:
        ann.lab.root(ann.lab.login, "scontrol", "update", f"nodename={host}", "state=idle")
