"""The wait for background tasks, played by the real ansible-playbook on three local hosts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from tests import warm
from tests.unit.conftest import settings

ROOT = Path(__file__).parents[3]


def play(
    directory: Path, commands: dict[str, str], *flags: str, **options: Any
) -> tuple[dict[str, Any], str]:
    """Start one shell command on each host, wait for all, and return the results and the output."""
    tasks_dir = f"{directory}/{{{{ inventory_hostname }}}}"
    (directory / "inventory.yml").write_text(
        yaml.safe_dump(
            {
                "all": {
                    "hosts": {host: {"line": commands[host]} for host in commands},
                    "vars": {
                        "ansible_connection": "local",
                        "ansible_python_interpreter": warm.python(),
                    },
                }
            }
        )
    )
    start = {"tasks_dir": tasks_dir, "name": "count", "argv": ["/bin/sh", "-c", "{{ line }}"]}
    wait = {"tasks_dir": tasks_dir, "name": "count", "poll_seconds": 1, **options}
    (directory / "play.yml").write_text(
        yaml.safe_dump(
            [
                {
                    "hosts": "all",
                    "gather_facts": False,
                    "tags": ["weights"],
                    "tasks": [
                        {
                            "name": "Start",
                            "background_command": start,
                            "register": "begun",
                            "when": "line != ''",
                        },
                        {"name": "Wait", "background_wait": wait, "when": "line != ''"},
                    ],
                }
            ]
        )
    )
    environment = {
        **os.environ,
        # Not the repository's settings: their callbacks would record this as a run.
        "ANSIBLE_CONFIG": str(settings() / "ansible.cfg"),
        "ANSIBLE_LIBRARY": str(ROOT / "library"),
        "ANSIBLE_ACTION_PLUGINS": str(ROOT / "action_plugins"),
        "ANSIBLE_MODULE_UTILS": str(ROOT / "src"),
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "VLLM_ANSIBLE_RUN_DIR": str(directory),
    }
    done = warm.play(["-i", "inventory.yml", *flags, "play.yml"], directory, environment)
    assert "{" in done.stdout, done.stdout + done.stderr
    # What the workers print comes before the results.
    printed, brace, text = done.stdout.partition("{\n")
    plays = json.loads(brace + text)["plays"]
    return plays[0]["tasks"][-1]["hosts"], printed


def test_every_host_is_waited_for_with_one_line(tmp_path: Path) -> None:
    commands = {"quick": "echo one", "slow": "sleep 2; echo two", "other": "echo three"}
    results, _ = play(tmp_path, commands)
    texts = {host: result["status"]["progress"]["text"] for host, result in results.items()}
    assert texts == {"quick": "one", "slow": "two", "other": "three"}
    assert not any(result["changed"] for result in results.values())
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {event["stage"] for event in events} == {"weights"}
    assert events[-1]["text"] == "3 of 3 hosts done"
    # One line for the cluster: nobody says the same twice.
    said = [event["text"] for event in events]
    assert len(said) == len(set(said))


def test_hosts_beyond_the_forks_are_waited_for_in_their_turn(tmp_path: Path) -> None:
    moves = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done"
    # Done, or silent again, for longer than the bound before anybody looks.
    commands = {
        "quick": f"{moves}; {moves}",
        "slow": f"echo begun; sleep 10; {moves}",
        "other": "echo done",
    }
    results, _ = play(tmp_path, commands, "--forks", "1", silence_seconds=8)
    assert not any(result.get("failed") for result in results.values())
    assert {result["status"]["state"] for result in results.values()} == {"done"}


def test_silence_and_failure_are_told_apart(tmp_path: Path) -> None:
    commands = {
        "quick": "echo broken pipe; exit 3",
        "slow": "echo stuck; sleep 600",
        # For longer than the silence that is borne.
        "other": "for i in $(seq 17); do echo $i; sleep 0.5; done",
    }
    results, _ = play(tmp_path, commands, silence_seconds=7)
    try:
        assert results["quick"]["msg"] == "count failed: exit status 3: broken pipe."
        assert results["quick"]["log_tail"] == ["broken pipe"]
        assert results["slow"]["msg"].startswith("count stalled: nothing has moved for ")
        assert results["slow"]["expected"] == "progress at least every 7 s"
        assert results["slow"]["found"].endswith("its last progress was: stuck")
        assert results["slow"]["where"] == f"slow:{tmp_path}/slow/count.log"
        assert "failed" not in results["other"]
    finally:
        from vllm_ansible.node.process import background

        background.stop(str(tmp_path / "slow"), "count")


def test_check_mode_waits_for_nothing(tmp_path: Path) -> None:
    results, _ = play(tmp_path, {"quick": "sleep 600"}, "--check")
    assert results["quick"]["skipped"]
    assert not (tmp_path / "quick").exists()


def test_a_task_that_was_never_started_is_named(tmp_path: Path) -> None:
    results, _ = play(tmp_path, {"quick": "true"}, "--start-at-task", "Wait")
    assert results["quick"]["msg"] == "count failed: it was never started on this host."


def test_hosts_that_start_nothing_are_not_counted(tmp_path: Path) -> None:
    commands = {"quick": "echo one; sleep 1", "slow": "echo two; sleep 2", "other": ""}
    results, _ = play(tmp_path, commands, started="begun")
    assert results["other"]["skipped"]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events[-1]["text"] == "2 of 2 hosts done"
    assert all("other" not in event["text"] for event in events)


def test_what_is_counted_is_shown_without_the_rest_of_what_a_program_prints(tmp_path: Path) -> None:
    """As the client of a benchmark prints its whole namespace, and libraries their warnings."""
    lines = "echo Triton is installed; sleep 3; printf '\r 50%%|= | 1/2 [00:01]'; sleep 3; "
    lines += "printf '\r100%%|==| 2/2 [00:02]'; sleep 3; echo; echo ===== {}"
    results, _ = play(tmp_path, {"here": lines}, counted="answers")
    assert results["here"]["status"]["state"] == "done"
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {(event["done"], event["total"], event["unit"]) for event in events} <= {
        (1.0, 2.0, "answers"), (2.0, 2.0, "answers"), (None, None, ""),
    }  # fmt: skip
    assert any(event["done"] for event in events)
    assert not [event for event in events if "Triton" in event["text"] or "=" in event["text"]]
