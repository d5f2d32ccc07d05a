"""A run that is ended by Ctrl-C: at once, and with its record."""

from __future__ import annotations

import signal
import subprocess
import time

from .conftest import Project, Ran
from .test_run_record import gate


def test_an_interrupted_run_keeps_its_events_and_has_an_end(project: Project) -> None:
    # It often comes while the next task's workers are forked: Python drops it there, and Ansible's
    # own handler fails. Once is enough all the same.
    project.play(
        {"tags": ["install"], "tasks": [gate("before"), {"ansible.builtin.command": "sleep 600"}]}
    )
    process = subprocess.Popen(
        project.command,
        cwd=project.directory,
        env=project.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 240
        while time.monotonic() < until:
            records = project.directory.glob("runs/*-*/events.jsonl")
            if any("before" in record.read_text() for record in records):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[0]
    finally:
        process.kill()
    ran = Ran(process.returncode, output, project.latest())
    assert ran.status != 0
    assert ran.of("evidence")[0]["summary"] == "before"
    end = ran.events[-1]
    assert (end["event"], end["ok"], end["interrupted"]) == ("run_end", False, True)
    assert ran.directory
    assert "Interrupted in stage install" in (ran.directory / "report.html").read_text()
    assert "stopped    in stage install" in output
