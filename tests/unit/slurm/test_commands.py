"""Slurm's commands: what is asked in which words, and what is made of the answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.slurm.commands import Lost, Silent, Slurm
from vllm_ansible.slurm.job import jobs
from vllm_ansible.slurm.settings import Settings

from .recorded import CONFIG, REFUSALS, RUNNING, SHOWN

WANTED = Settings(
    cluster="r1",
    nodes=4,
    shared_dir="/scratch/ann",
    partition="gpu_h100",
    account="my_lab",
    gres="gpu:h100:4",
    constraint="h100",
    time="3-00:00:00",
    extra_args=("--exclusive", "--mem=1440G"),
    setup=("module load cuda",),
)
Answer = tuple[int, str, str]


def slurm(*answers: Answer) -> tuple[Slurm, list[list[str]], list[str]]:
    """Return Slurm with answers in their order, the commands it ran, and their input."""
    commands: list[list[str]] = []
    inputs: list[str] = []
    script = iter(answers)

    def run(command: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
        if list(command) == ["scontrol", "show", "config"]:
            return subprocess.CompletedProcess(list(command), 0, CONFIG, "")
        commands.append(list(command))
        inputs.append(text)
        status, output, errors = next(script)
        return subprocess.CompletedProcess(list(command), status, output, errors)

    return Slurm(WANTED, run, "ann"), commands, inputs


def test_jobs_are_this_users_of_this_clusters_name() -> None:
    asked, commands, _ = slurm((0, RUNNING, ""))
    assert asked.jobs() == jobs(RUNNING)
    assert commands[0][:5] == [
        *("squeue", "--noheader", "--user=ann", "--name=vllm-r1", "--states=all"),
    ]


def test_a_job_is_asked_for_in_the_words_of_the_inventory() -> None:
    asked, commands, inputs = slurm((0, "4711\n", ""))
    assert asked.submit() == "4711"
    for word in (
        *("--job-name=vllm-r1", "--nodes=4", "--partition=gpu_h100", "--account=my_lab"),
        *("--gres=gpu:h100:4", "--constraint=h100", "--time=3-00:00:00", "--requeue"),
        *("--ntasks-per-node=1", "--output=/scratch/ann/r1/slurm-%j.log"),
    ):
        assert word in commands[0]
    assert commands[0][-2:] == ["--exclusive", "--mem=1440G"]
    assert not [word for word in commands[0] if word.startswith(("--gpus", "--reservation"))]
    lines = inputs[0].splitlines()
    # KillWait is 5 s there.
    assert f"\"$SLURM_JOB_ID\" 3 '/tmp/vllm-r1-{os.getuid()}' \\\n" in inputs[0]
    assert lines[0] == "#!/bin/bash -l"
    assert lines.index("module load cuda") < next(n for n, one in enumerate(lines) if "srun" in one)


def test_a_number_is_found_among_what_a_sites_sbatch_says() -> None:
    asked, _, _ = slurm((0, "You have 12 hours left.\n4711;cluster1\n", ""))
    assert asked.submit() == "4711"


@pytest.mark.parametrize("words", REFUSALS.values())
def test_a_refusal_is_final(words: str) -> None:
    asked, _, _ = slurm((1, "", words))
    with pytest.raises(PlanError, match="Slurm refuses the job"):
        asked.submit()


def test_an_answer_that_was_lost_is_told_apart_from_a_refusal() -> None:
    asked, _, _ = slurm((1, "", "sbatch: error: Socket timed out on send/recv operation"))
    with pytest.raises(Lost):
        asked.submit()
    asked, _, _ = slurm((0, "", "nothing of a number"))
    with pytest.raises(Lost):
        asked.submit()


def test_the_place_in_the_queue_is_counted_among_those_that_wait() -> None:
    asked, _, _ = slurm((0, "7\n9_[1-4]\n12\n", ""))
    assert asked.position(jobs(RUNNING)[0]) == 3


def test_names_of_nodes_are_names() -> None:
    asked, _, _ = slurm((0, "lab2\nlab3\n{{ evil }}\n-x\n", ""))
    assert asked.node_names("lab[2-3]") == ["lab2", "lab3"]


def test_restarts_are_counted() -> None:
    asked, _, _ = slurm((0, SHOWN, ""))
    assert asked.restarts(jobs(RUNNING)[0]) == 2


def test_a_slurmctld_that_does_not_answer_is_no_empty_queue() -> None:
    asked, _, _ = slurm((1, "", "slurm_load_jobs error: Unable to contact slurm controller"))
    with pytest.raises(Silent, match="Unable to contact"):
        asked.jobs()


def test_a_machine_without_slurm_is_told_where_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PlanError, match="on a login node"):
        Slurm(WANTED).jobs()


def test_trying_out_asks_for_nothing() -> None:
    said = "sbatch: Job 13 to start at 2026-11-22T18:59:56 using 1 processors on nodes lab2\n"
    asked, commands, _ = slurm((0, "", said))
    assert asked.try_out().startswith("Job 13 to start at")
    assert commands[0][:2] == ["sbatch", "--test-only"]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "scancel: error: Kill job error on job id 12: Job/step already completing or completed\n",
        "scancel: error: Kill job error on job id 12: Invalid job id specified\n",
    ],
)
def test_taking_back_a_job_that_has_just_ended_is_no_error(words: str) -> None:
    asked, commands, _ = slurm((1, "", words))
    asked.cancel("12")
    assert commands == [["scancel", "12"]]


def test_a_job_that_cannot_be_taken_back_is_no_success() -> None:
    asked, _, _ = slurm((1, "", "scancel: error: Unable to contact slurm controller"))
    with pytest.raises(Silent, match="Unable to contact"):
        asked.cancel("12")


def test_jobs_are_those_of_the_process_s_own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "bob")
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(list(command), 0, "", "")

    Slurm(WANTED, run).jobs()
    assert f"--user={os.getuid()}" in commands[0]
