"""What tasks render with is loaded once for a run, not once for each task."""

from __future__ import annotations

import configparser

import pytest

from .conftest import REPOSITORY, Project

# Says each time that it is loaded, and by which process.
FILTER = """
import os
with open("loaded", "a") as log:
    log.write(f"{os.getpid()}\\n")

class FilterModule:
    def filters(self):
        return {"doubled": lambda text: text * 2}
"""
RENDERED = {
    "name": "Render",
    "ansible.builtin.assert": {"that": "inventory_hostname | doubled == inventory_hostname * 2"},
}


@pytest.mark.parametrize(("enabled", "times"), [("preload, run_record", 1), ("run_record", 6)])
def test_filters_are_loaded_once(project: Project, enabled: str, times: int) -> None:
    plugins = project.directory / "filter_plugins"
    plugins.mkdir()
    (plugins / "doubled.py").write_text(FILTER)
    settings = project.directory / "ansible.cfg"
    text = settings.read_text().replace("= run_record", f"= {enabled}")
    settings.write_text(text + f"filter_plugins = {plugins}\n")
    project.play({"tags": ["prepare"], "tasks": [RENDERED] * 3})
    assert project.run().status == 0
    loads = (project.directory / "loaded").read_text().split()
    assert len(set(loads)) == times


FROZEN = """
import gc

class FilterModule:
    def filters(self):
        return {"frozen": lambda text: gc.get_freeze_count()}
"""


def test_collectors_of_workers_leave_alone_what_was_there_before_them(project: Project) -> None:
    plugins = project.directory / "filter_plugins"
    plugins.mkdir()
    (plugins / "frozen.py").write_text(FROZEN)
    settings = project.directory / "ansible.cfg"
    text = settings.read_text().replace("= run_record", "= preload, run_record")
    settings.write_text(text + f"filter_plugins = {plugins}\n")
    # Ansible itself has some hundred thousand objects.
    counted = {"that": "inventory_hostname | frozen > 50000"}
    task = {"name": "Count", "ansible.builtin.assert": counted}
    project.play({"tags": ["prepare"], "tasks": [task]})
    assert project.run().status == 0


def test_runs_of_this_project_do_so() -> None:
    settings = configparser.ConfigParser()
    settings.read(REPOSITORY / "ansible.cfg")
    assert "preload" in settings["defaults"]["callbacks_enabled"].split(", ")
    # What a role adds lets Ansible forget what was loaded.
    assert not [
        *REPOSITORY.glob("roles/*/filter_plugins"),
        *REPOSITORY.glob("roles/*/test_plugins"),
    ]
