"""The record does not depend on the console: ansible-runner replaces it."""

from __future__ import annotations

import ansible_runner

from .conftest import REPOSITORY, Project, Ran
from .test_run_record import gate


def test_ansible_runner_gets_the_same_record(project: Project) -> None:
    project.play({"name": "Check", "tags": ["validate"], "tasks": [gate("all well")]})
    private = project.directory / "runner"
    private.mkdir()
    runner = ansible_runner.run(
        private_data_dir=str(private),
        project_dir=str(project.directory),
        playbook="site.yml",
        inventory=str(project.directory / "hosts.yml"),
        # Runner puts its own callbacks into this variable, which hides the ones of ansible.cfg.
        envvars={"ANSIBLE_CALLBACK_PLUGINS": str(REPOSITORY / "callback_plugins")},
        quiet=True,
    )
    assert runner.status == "successful", runner.stdout.read()
    assert "PLAY [Check]" in runner.stdout.read()
    ran = Ran(runner.rc, "", project.latest())
    assert ran.of("evidence")[0]["summary"] == "all well"
    assert ran.events[-1]["ok"] is True
    assert ran.directory
    assert (ran.directory / "report.html").exists()
