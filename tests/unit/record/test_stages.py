"""What a person sees of real runs of ansible-playbook."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import time
from typing import Any, ClassVar

import pytest

from vllm_ansible.provision.ledger import FILE, Ledger
from vllm_ansible.record import plays

from .conftest import REPOSITORY, Project, Ran
from .test_rented import ONE
from .test_run_record import CHANGE, DEBUG, gate

QUIET = {"name": "Look closely", "gate_of_test": {}}


def test_a_stage_is_announced_and_ends_with_its_evidence_and_seconds(project: Project) -> None:
    project.play({"name": "Check it all", "tags": ["validate"], "tasks": [QUIET, gate("all well")]})
    ran = project.run()
    lines = ran.output.splitlines()
    assert lines[0] == " validate   Check it all"
    assert re.fullmatch(r" validate   all well +\d+\.\d s", lines[1])
    assert re.fullmatch(r" done       2 hosts, changed=0, failed=0", lines[2])
    assert re.fullmatch(r" report     runs/\S+/report\.html", lines[3])
    assert len(lines) == 4, ran.output


def test_a_stage_of_rented_machines_ends_with_their_cost_and_the_next_stage(
    project: Project, request: pytest.FixtureRequest
) -> None:
    """Also where tags leave the next stage out; not after the last one, where the run says it."""
    # The callback reads the state/ that it lies beside.
    cluster = f"so-far-{os.getpid()}"
    state = REPOSITORY / "state" / cluster
    request.addfinalizer(lambda: shutil.rmtree(state))
    Ledger(state / f"lambda-{FILE}").see([ONE], time.time() - 7200)
    project.hosts({"a": {}}, cluster)
    project.play(
        {"tags": ["provision"], "tasks": [gate("2 machines")]},
        {"tags": ["prepare"], "tasks": [gate("fit")]},
        {"tags": ["release", "always"], "tasks": [QUIET]},
    )
    # A busy machine may take minutes for the play.
    told = re.compile(r" {12}\$(2\.9[89]|3\.\d\d) so far at \$1\.49/h; next: prepare")
    lines = project.run("--tags", "provision").output.splitlines()
    assert [at for at, line in enumerate(lines) if "so far at" in line] == [2], lines
    assert told.fullmatch(lines[2])
    assert project.run().output.count("so far at") == 1


def test_a_failure_says_what_was_expected_what_was_found_and_what_to_do(project: Project) -> None:
    verdict = {"expected": "2 hosts", "found": "1", "cause": "b is off", "fix": "start b"}
    task = {"name": "Count", "diagnose": {"title": "Too few", "verdict": verdict}}
    project.play({"name": "Start", "tags": ["cluster"], "tasks": [task]})
    ran = project.run()
    text = ran.output
    assert re.search(r"^ cluster    a, b: Too few +\d+\.\d s$", text, re.MULTILINE), text
    for name, words in verdict.items():
        assert f"   {name:<9}{words}" in text
    assert text.count("Too few") == 1
    assert "Traceback" not in text
    assert " failed     2 hosts, changed=0, failed=2" in text
    assert "report.html" in text


def test_hosts_stand_in_their_order_whoever_was_first(project: Project) -> None:
    project.hosts({"node10": {"after": 0}, "node2": {"after": 1}})
    late = {
        "name": "Wait",
        "ansible.builtin.command": {"argv": ["sh", "-c", "sleep $AFTER; exit 1"]},
        "environment": {"AFTER": "{{ after }}"},
    }
    project.play({"tags": ["cluster"], "tasks": [late]})
    assert "node2, node10: " in project.run().output


def test_findings_and_changes_name_their_hosts_in_the_same_order(project: Project) -> None:
    # One after the other, the later name first.
    project.hosts({"node10": {}, "node2": {}})
    found = gate("{{ inventory_hostname }} has 1 card")
    tasks = [{**found, "throttle": 1}, CHANGE]
    project.play({"tags": ["prepare"], "tasks": tasks, "order": "inventory"})
    output = project.run().output
    assert output.index("node2: node2 has 1 card") < output.index("node10: node10 has 1 card")
    assert "changed=2 (node2 1, node10 1)" in output


def test_the_words_of_a_debug_task_are_shown_and_nothing_of_a_quiet_one(project: Project) -> None:
    project.play({"tags": ["status"], "tasks": [QUIET, DEBUG]})
    output = project.run("--limit", "a").output
    assert "hello" in output.splitlines()
    assert "Look closely" not in output


def test_with_v_the_tasks_are_shown_as_ansible_shows_them(project: Project) -> None:
    project.play({"name": "Check", "tags": ["validate"], "tasks": [QUIET, CHANGE]})
    output = project.run("-v").output
    assert "TASK [Look closely]" in output
    assert "ok: [a]" in output
    assert "changed: [b]" in output
    assert "PLAY RECAP" in output


def test_a_diff_is_shown_to_who_asks_for_one(project: Project) -> None:
    target = project.directory / "text"
    task = {"ansible.builtin.copy": {"dest": str(target), "content": "new line\n"}}
    project.play({"tags": ["prepare"], "tasks": [task]})
    assert "+new line" in project.run("--check", "--diff", "--limit", "a").output
    assert "+new line" not in project.run("--check", "--limit", "a").output


def _on_a_terminal(project: Project) -> str:
    """Run the playbook with a terminal for its output."""
    ours, theirs = pty.openpty()
    environment: dict[str, Any] = {**project.environment, "TERM": "xterm"}
    environment.pop("ANSIBLE_NOCOLOR")
    process = subprocess.Popen(
        project.command, cwd=project.directory, env=environment, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65536):
            said += chunk
    except OSError:
        pass  # Linux ends the reading side of a terminal with an error when the last writer left.
    process.wait(timeout=240)
    os.close(ours)
    return said.decode()


def test_on_a_terminal_a_line_is_written_over_and_colours_are_used(project: Project) -> None:
    project.play({"name": "Check", "tags": ["validate"], "tasks": [QUIET, gate("all well")]})
    said = _on_a_terminal(project)
    assert "\x1b[K validate   Prove it\r" in said
    assert "all well" in said
    assert re.search(r"\x1b\[0;32m.*done.*changed=0", said)


def test_a_worker_shows_progress_and_records_it(project: Project) -> None:
    plugins = project.directory / "action_plugins"
    plugins.mkdir()
    (plugins / "long_task.py").write_text(
        "from ansible.plugins.action import ActionBase\n"
        "from ansible.utils.display import Display\n"
        "from vllm_ansible.record.progress import Progress\n"
        "class ActionModule(ActionBase):\n"
        "    def run(self, tmp=None, task_vars=None):\n"
        "        progress = Progress(Display(), 'serve', 'Load')\n"
        "        for shard in range(1, 4):\n"
        "            progress.show('loading', shard, 3, 'shards', phase=str(shard))\n"
        "        return {'changed': False}\n"
    )
    project.play({"tags": ["serve"], "tasks": [{"long_task": {}, "run_once": True}]})
    ran = project.run()
    assert " serve      loading   2 of 3 shards" in ran.output.splitlines()
    assert [event["done"] for event in ran.of("progress")] == [1, 2, 3]
    said = _on_a_terminal(project)
    assert "\x1b[K serve      loading   3 of 3 shards\r" in said


def test_a_run_outlives_whoever_read_its_console(project: Project) -> None:
    """As `head` does."""
    project.play({"tags": ["install"], "tasks": [gate("before"), gate("after")]})
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        project.command,
        cwd=project.directory,
        env=project.environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    ran = Ran(done.returncode, "", project.latest())
    assert [one["summary"] for one in ran.of("evidence")] == ["before", "before", "after", "after"]
    assert ran.events[-1]["event"] == "run_end" and ran.events[-1]["ok"]


def test_a_host_is_named_without_what_ansible_deprecates() -> None:
    """ansible-core 2.21 prints two warnings before each failure whose fields are asked for."""

    class Result:
        _task_fields: ClassVar[dict[str, str]] = {"delegate_to": "n2"}

        @property
        def task_fields(self) -> None:
            raise AssertionError("deprecated")

    assert plays.host(Result()) == "n2"
