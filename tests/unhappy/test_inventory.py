"""Bad inventories, given to ansible-playbook itself: what a person reads, and when."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm

ROOT = Path(__file__).parents[2]
VALIDATE = ROOT / "playbooks/validate.yml"
ENGINE = {"name": "a", "model": "o/m"}


def play(
    directory: Path,
    hosts: dict[str, Any],
    *arguments: str | Path,
    callback: str = "ansible.posix.json",
    environment: Mapping[str, str] | None = None,
    **variables: Any,
) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook over an inventory of these hosts and variables."""
    (directory / "group_vars").mkdir()
    inventory = {"all": {"children": {"gpu": {"hosts": hosts}}}}
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (directory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))
    return warm.play(
        ["-i", directory, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_STDOUT_CALLBACK": callback,
            "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs"),
            **(environment or {}),
        },
    )


def validate(
    directory: Path, hosts: dict[str, Any], *more: str, **variables: Any
) -> tuple[int, dict[str, Any]]:
    """Run the stage and return its status and what it answered."""
    done = play(directory, hosts, *more, VALIDATE, **variables)
    start = done.stdout.find("{")
    assert start >= 0, done.stderr or done.stdout
    plays = json.loads(done.stdout[start:])["plays"]
    first = next(task for one in plays for task in one["tasks"] if task["hosts"])
    (answer,) = first["hosts"].values()
    return done.returncode, answer


def test_a_good_inventory_passes_with_its_evidence(tmp_path: Path) -> None:
    hosts = {"n1": {}, "n2": {"my_rack": 4}}
    status, answer = validate(tmp_path, hosts, cluster_name="r1", engines=[ENGINE])
    assert status == 0, answer
    told = "r1: 1 engine on 2 hosts; fit of a not checked: the hosts' accelerators are not known"
    assert answer["evidence"]["summary"] == told
    assert answer["evidence"]["gate"] == "validate"


@pytest.mark.parametrize(
    ("hosts", "more", "variables", "message"),
    [
        pytest.param(
            {"n1": None},
            (),
            {"cluster_nam": "r1"},
            "no variable is called cluster_nam (DIR/group_vars/all.yml:1): "
            "did you mean cluster_name?",
            id="misspelt variable",
        ),
        pytest.param(
            {"n1": None},
            ("-e", "alow_disruption=true"),
            {},
            "no variable is called alow_disruption (-e on the command line): "
            "did you mean allow_disruption?",
            id="misspelt on the command line",
        ),
        pytest.param(
            {"n1": {"accelerator_count": "two"}},
            (),
            {},
            "accelerator_count must be a whole number, not 'two' (str) (DIR/hosts.yml:6): "
            "correct it (see `ansible-doc -t role site`).",
            id="wrong type",
        ),
        pytest.param(
            {},
            (),
            {},
            "the group gpu has no hosts (the inventory): put the hosts that serve models into the "
            "group gpu (is it the right -i?).",
            id="empty group",
        ),
        pytest.param(
            {"n1": None, "n2": None, "n3": None},
            (),
            {"accelerator": "cpu", "engines": [{**ENGINE, "layout": {"tensor": 4}}]},
            "engine a needs 4 accelerators (tensor 4 x pipeline 1) on 1 x 4 or 2 x 2 or 4 x 1 "
            "(hosts x ranks), and free are: n1 1 of 1, n2 1 of 1, n3 1 of 1 "
            "(DIR/group_vars/all.yml:2): make the layout smaller or raise accelerator_count "
            "(ranks a CPU host may run).",
            id="layout larger than the cluster",
        ),
        pytest.param(
            {"n1": None, "n2": {"cluster_name": "r2"}, "n3": None},
            (),
            {"cluster_name": "r1"},
            "cluster_name must be equal on all hosts of a cluster: it is r2 on n2, but r1 on "
            "n1, n3 (DIR/hosts.yml:7): set cluster_name in group_vars/all.yml only.",
            id="one host differs from its group",
        ),
        pytest.param(
            {"n1": None, "n2": None},
            (),
            {"door_hosts": ["n1", "gpu-2"], "observe_host": "n22"},
            "1. door_hosts names gpu-2, which the group gpu does not have "
            "(DIR/group_vars/all.yml:1): name a host of the group gpu in door_hosts: n1, n2.\n"
            "2. observe_host names n22, which the group gpu does not have "
            "(DIR/group_vars/all.yml:4): did you mean n2?",
            id="hosts that are not there",
        ),
    ],
)
def test_a_bad_inventory_is_refused_in_one_sentence(
    tmp_path: Path,
    hosts: dict[str, Any],
    more: tuple[str, ...],
    variables: dict[str, Any],
    message: str,
) -> None:
    status, answer = validate(tmp_path, hosts, *more, **variables)
    assert status != 0
    assert answer["msg"] == message.replace("DIR", str(tmp_path))


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    engines = [{"name": "A", "modle": "x"}]
    hosts = {"n1": {"supervisr": "systemd"}}
    _, answer = validate(tmp_path, hosts, engines=engines, allow_disruption="perhaps")
    assert len(answer["problems"]) == 5
    assert answer["msg"].splitlines()[-1].startswith("5. ")


def test_a_stage_that_runs_alone_refuses_a_bad_inventory_itself(tmp_path: Path) -> None:
    done = play(tmp_path, {"n1": {"accelerator_cont": 2}}, ROOT / "playbooks/serve.yml")
    assert done.returncode == 2
    assert "no variable is called accelerator_cont" in done.stdout


def test_stages_that_were_not_asked_for_do_nothing_and_are_not_called_ok(tmp_path: Path) -> None:
    site = (ROOT / "site.yml", "--tags", "validate")
    hosts = {"n1": {}, "n2": {}}
    done = play(tmp_path, hosts, *site, callback="stages", cluster_name="r1", engines=[ENGINE])
    assert done.returncode == 0, done.stdout
    told = {line.split()[0] for line in done.stdout.splitlines() if line[1:2].isalpha()}
    assert told == {"validate", "release", "done", "report"}
    events = (tmp_path / "runs/latest/events.jsonl").read_text().splitlines()
    tasks = [one for one in map(json.loads, events) if one["event"] == "task"]
    assert [one["task"] for one in tasks if one["status"] != "skipped"] == [
        "Check every variable of every host",
        "Let every stage know that this was done",
    ]
