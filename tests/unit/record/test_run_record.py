"""The record of real runs of ansible-playbook: complete, without secrets, and never in the way."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.record import run_directory

from .conftest import Project

DEBUG = {"ansible.builtin.debug": {"msg": "hello"}}
FAIL = {"name": "Fail", "ansible.builtin.fail": {"msg": "no luck"}}
CHANGE = {"name": "Change", "ansible.builtin.command": "true"}


def gate(summary: str, **values: Any) -> dict[str, Any]:
    evidence = {"gate": "validate", "summary": summary, "values": values}
    return {"name": "Prove it", "gate_of_test": {"evidence": evidence}}


def test_a_good_run_is_recorded_from_start_to_end(project: Project) -> None:
    project.play(
        {"name": "Check", "tags": ["validate"], "tasks": [gate("all is well", engines=2)]},
        {"name": "Change", "tags": ["prepare"], "tasks": [CHANGE]},
    )
    ran = project.run("-e", "vllm_api_key=swordfish")
    assert ran.status == 0, ran.output
    kinds = [event["event"] for event in ran.events]
    assert kinds[0] == "run_start"
    assert kinds[-1] == "run_end"
    start, end = ran.events[0], ran.events[-1]
    assert start["cluster"] == "demo"
    assert start["check"] is False
    assert ran.directory
    assert start["run"] == ran.directory.name
    assert "vllm_api_key=<hidden>" in start["command"]
    assert (end["ok"], end["changed"], end["failures"]) == (True, 2, 0)
    assert [event["stage"] for event in ran.of("stage_start")] == ["validate", "prepare"]
    assert [event["ok"] for event in ran.of("stage_end")] == [True, True]
    assert {event["host"] for event in ran.of("task")} == {"a", "b"}
    assert {event["status"] for event in ran.of("task")} == {"ok", "changed"}
    found = ran.of("evidence")[0]
    assert (found["gate"], found["summary"], found["values"]) == (
        "validate",
        "all is well",
        {"engines": 2},
    )
    assert (ran.directory / "report.html").stat().st_size > 1000


def test_a_task_of_a_role_has_its_own_name_under_every_ansible(project: Project) -> None:
    tasks = project.directory / "roles" / "one" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text(yaml.safe_dump([gate("all is well"), FAIL]))
    project.play({"name": "Check", "tags": ["validate"], "roles": ["one"]})
    ran = project.run()
    assert {event["task"] for event in ran.of("task")} == {"Prove it", "Fail"}
    assert {event["task"] for event in ran.of("failure")} == {"Fail"}


def test_the_directory_is_its_owners_alone_and_latest_points_to_it(project: Project) -> None:
    project.play({"tags": ["validate"], "tasks": [DEBUG]})
    first = project.run().directory
    second = project.run().directory
    assert first
    assert second
    assert first != second
    assert stat.S_IMODE(second.stat().st_mode) == 0o700
    assert stat.S_IMODE((second / "events.jsonl").stat().st_mode) == 0o600
    assert os.readlink(project.directory / "runs" / "latest") == second.name


def test_runs_lie_where_the_environment_says(project: Project, tmp_path: Path) -> None:
    project.play({"tags": ["validate"], "tasks": [DEBUG]})
    chosen = tmp_path / "elsewhere"
    subprocess.run(
        project.command,
        cwd=project.directory,
        env={**project.environment, "VLLM_ANSIBLE_RUNS_DIR": str(chosen)},
        check=True,
        capture_output=True,
    )
    assert (chosen / "latest" / "events.jsonl").exists()
    assert project.latest() is None


def test_workers_know_the_directory_of_the_run(project: Project) -> None:
    lookup = "{{ lookup('env', 'VLLM_ANSIBLE_RUN_DIR') }}"
    project.play({"tags": ["validate"], "tasks": [gate(lookup)]})
    ran = project.run()
    assert ran.of("evidence")[0]["summary"] == str(ran.directory)


def test_listings_and_syntax_checks_leave_nothing(project: Project) -> None:
    project.play({"tags": ["validate"], "tasks": [DEBUG]})
    for argument in ("--list-tasks", "--syntax-check", "--list-hosts"):
        assert project.run(argument).directory is None


def test_no_secret_gets_in(project: Project) -> None:
    project.play(
        {
            "tags": ["serve"],
            "vars": {"secret": "swordfish"},
            "tasks": [
                {"name": "Use it", "ansible.builtin.command": "echo {{ secret }}"},
                {
                    "name": "Break it",
                    "ansible.builtin.command": "ls /{{ secret }}",
                    "no_log": True,
                },
            ],
        }
    )
    ran = project.run()
    assert ran.status != 0
    assert ran.directory
    for file in ran.directory.iterdir():
        assert "swordfish" not in file.read_text(), file
    assert "hidden" in ran.of("failure")[0]["msg"]
    assert "swordfish" not in ran.output


def test_a_failure_has_the_words_of_its_module(project: Project) -> None:
    fields = {"expected": "two hosts", "found": "one", "fix": "add a host", "command": "x --y"}
    play = {
        "tags": ["validate"],
        "tasks": [
            {
                "name": "Diagnose",
                "diagnose": {"title": "No good", "verdict": fields},
                "run_once": True,
            }
        ],
    }
    project.play(play)
    failure = project.run().of("failure")[0]
    assert failure["msg"] == "No good"
    assert {name: failure[name] for name in fields} == fields
    assert failure["host"] == "a"
    assert failure["stage"] == "validate"


def test_a_known_failure_gets_its_cause_and_fix(project: Project) -> None:
    said = "OSError: [Errno 98] Address already in use"
    project.play(
        {"tags": ["serve"], "tasks": [{"name": "F", "ansible.builtin.fail": {"msg": said}}]}
    )
    ran = project.run()
    failure = ran.of("failure")[0]
    assert failure["signature"] == "port-taken"
    assert failure["cause"]
    assert failure["fix"]
    assert ran.of("stage_end")[0]["ok"] is False
    assert (ran.events[-1]["ok"], ran.events[-1]["failures"]) == (False, 2)


def test_what_a_command_said_last_is_the_message(project: Project) -> None:
    project.play({"tags": ["serve"], "tasks": [{"ansible.builtin.command": "ls /does-not-exist"}]})
    failure = project.run().of("failure")[0]
    assert "No such file or directory" in failure["msg"]
    assert "exit status 2" in failure["msg"]
    assert failure["command"] == "ls /does-not-exist"


def test_a_rescued_failure_is_none_but_one_in_the_rescue_is(project: Project) -> None:
    rescued = {"block": [FAIL], "rescue": [DEBUG]}
    nested = {"block": [{"block": [FAIL], "always": [DEBUG]}], "rescue": [DEBUG]}
    project.play({"tags": ["serve"], "tasks": [rescued, nested]})
    ran = project.run()
    assert ran.status == 0
    assert "no luck" not in ran.output
    assert ran.of("failure") == []
    assert ran.events[-1]["ok"] is True
    assert all(task["expected"] for task in ran.of("task") if task["status"] == "failed")

    project.play({"tags": ["serve"], "tasks": [{"block": [FAIL], "rescue": [FAIL]}]})
    ran = project.run()
    assert ran.status != 0
    assert len(ran.of("failure")) == 2


def test_a_failed_item_of_a_loop_speaks_for_the_loop(project: Project) -> None:
    task = {
        "name": "Loop",
        "ansible.builtin.command": "{{ item }}",
        "loop": ["true", "ls /missing-item"],
    }
    project.play({"tags": ["serve"], "tasks": [task]})
    ran = project.run("--limit", "a")
    assert "missing-item" in ran.of("failure")[0]["msg"]
    assert len(ran.of("task")) == 1


def test_a_host_that_cannot_be_reached_is_named_with_its_address(project: Project) -> None:
    away = {"ansible_connection": "ssh", "ansible_host": "127.0.0.9", "ansible_port": 1}
    project.hosts({"a": {}, "away": away})
    project.play({"tags": ["prepare"], "tasks": [{"ansible.builtin.ping": {}}]})
    ran = project.run()
    failure = ran.of("failure")[0]
    assert failure["host"] == "away"
    assert "127.0.0.9" in failure["expected"]
    assert "refused" in failure["found"]
    assert ran.events[-1]["ok"] is False
    assert {task["status"] for task in ran.of("task")} == {"ok", "unreachable"}


@pytest.mark.parametrize("loop", [{}, {"loop": [1]}])
def test_a_delegated_task_that_fails_names_the_host_it_ran_on(
    project: Project, loop: dict[str, Any]
) -> None:
    away = {"ansible_connection": "ssh", "ansible_host": "127.0.0.9", "ansible_port": 1}
    project.hosts({"a": {}, "away": away, "head": {}})
    reach = {"ansible.builtin.ping": {}, "delegate_to": "away", "run_once": True, **loop}
    project.play({"hosts": "a", "tags": ["prepare"], "tasks": [reach]})
    ran = project.run()
    (failure,) = ran.of("failure")
    assert failure["host"] == "away"
    assert "-m ping away" in failure["fix"] and "127.0.0.9" in failure["expected"]
    assert "away: The host cannot be reached" in ran.output

    project.play({"hosts": "a", "tasks": [{**FAIL, "delegate_to": "head", **loop}]})
    ran = project.run()
    assert [one["host"] for one in ran.of("failure")] == ["head"]
    assert "head: " in ran.output


def test_one_failure_with_any_errors_fatal_is_one_failure(project: Project) -> None:
    task = {**FAIL, "when": "inventory_hostname == 'a'"}
    project.play(
        {"tags": ["serve"], "any_errors_fatal": True, "tasks": [task, DEBUG]},
        {"tags": ["benchmark"], "tasks": [DEBUG]},
    )
    ran = project.run()
    assert ran.status != 0
    assert [failure["host"] for failure in ran.of("failure")] == ["a"]
    assert [event["stage"] for event in ran.of("stage_start")] == ["serve"]


def test_plays_of_one_stage_are_one_stage_and_skipped_ones_none(project: Project) -> None:
    project.play(
        {"name": "One", "tags": ["always", "validate"], "tasks": [DEBUG]},
        {"name": "Two", "tags": ["serve"], "tasks": [DEBUG]},
        {"name": "Three", "tags": ["serve"], "tasks": [DEBUG]},
        {"name": "Four", "tags": ["benchmark"], "tasks": [DEBUG]},
    )
    ran = project.run("--tags", "serve")
    assert [event["stage"] for event in ran.of("stage_start")] == ["validate", "serve"]


def test_the_stage_is_known_through_an_import(project: Project) -> None:
    project.play({"tags": ["zeta", "alpha", "always"], "tasks": [DEBUG]})
    (project.directory / "site.yml").rename(project.directory / "stage.yml")
    (project.directory / "site.yml").write_text("- import_playbook: stage.yml\n  tags: [more]\n")
    assert project.run().of("stage_start")[0]["stage"] == "zeta"


def test_check_mode_is_recorded_with_what_would_change(project: Project) -> None:
    target = project.directory / "made"
    task = {
        "name": "Make a directory",
        "ansible.builtin.file": {"path": str(target), "state": "directory"},
    }
    project.play({"tags": ["prepare"], "tasks": [task]})
    ran = project.run("--check", "--limit", "a")
    assert not target.exists()
    assert ran.events[0]["check"] is True
    assert ran.events[0]["limit"] == "a"
    assert ran.events[-1]["changed"] == 1
    assert "would change: Make a directory (a)" in ran.output


def test_nobody_to_work_on_is_a_warning(project: Project) -> None:
    project.play({"tags": ["serve"], "hosts": "gone", "tasks": [DEBUG]})
    ran = project.run()
    assert "no host matched" in ran.of("warning")[0]["text"]
    assert "no host matched" in ran.output


def test_a_directory_that_cannot_be_made_does_not_stop_the_run(project: Project) -> None:
    project.play({"tags": ["validate"], "tasks": [DEBUG]})
    (project.directory / "runs").write_text("a file in the way")
    ran = project.run()
    assert ran.status == 0
    assert "not recorded" in ran.output


def test_the_error_at_the_root_is_what_was_found(project: Project) -> None:
    project.play({"tags": ["install"], "tasks": [{"ansible.builtin.command": "/no/such/program"}]})
    failure = project.run("--limit", "a").of("failure")[0]
    assert "No such file or directory" in failure["found"]
    assert "Traceback" not in str(failure)


def test_where_the_checkout_may_not_be_written_runs_are_kept_at_home(
    nobodys: Path, as_nobody: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, home = nobodys / "checkout", nobodys / "home"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    checkout.mkdir()
    (checkout / "ansible.cfg").touch()
    monkeypatch.delenv("VLLM_ANSIBLE_RUNS_DIR", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    config = str(checkout / "ansible.cfg")
    assert run_directory.runs_directory(config) == checkout / "runs"
    checkout.chmod(0o555)
    made = as_nobody(lambda: str(run_directory.create(run_directory.runs_directory(config), "r1")))
    checkout.chmod(0o755)
    assert Path(made).parent == home / ".local/state/vllm-ansible/runs"
    assert (Path(made).parent / "latest").resolve() == Path(made)
