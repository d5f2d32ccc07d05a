"""What tasks render with is loaded once for a run, not once for each task."""

from __future__ import annotations

import configparser
import os
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

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


MODULE = (
    "from ansible.module_utils.basic import AnsibleModule\n"
    "AnsibleModule({}).exit_json(changed=False, said='first')\n"
)


def said(project: Project, word: str) -> bool:
    """Tell whether the module says this word in a run."""
    check = {"ansible.builtin.assert": {"that": f"found.said == '{word}'"}}
    project.play({"hosts": "a", "tasks": [{"says": {}, "register": "found"}, check]})
    return project.run().status == 0


def test_modules_are_built_once_as_long_as_their_sources_are_the_same(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.directory / "cache"))
    settings = project.directory / "ansible.cfg"
    text = settings.read_text().replace("= run_record", "= preload, run_record")
    # Beside a playbook alone they would not always be found.
    text = re.sub("^library = .*", f"library = {project.directory}/library", text, flags=re.M)
    settings.write_text(text)
    module = project.directory / "library" / "says.py"
    module.write_text(MODULE)
    assert said(project, "first")
    kept = list((project.directory / "cache/vllm-ansible/modules").glob("*/ansible.legacy.says-*"))
    assert len(kept) == 1 and kept[0].stat().st_mode & 0o077 == 0
    # By all that can be seen from outside it is the same file: what was built before is taken.
    before = module.stat()
    with module.open("r+") as file:
        file.write(MODULE.replace("first", "other"))
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert said(project, "first")
    # And it is not, where anything differs.
    os.utime(module)
    assert said(project, "other")


@pytest.fixture
def preload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Give the plugin, with directories of its own in place of those of this checkout."""
    spec = spec_from_file_location("preload_of_test", REPOSITORY / "callback_plugins/preload.py")
    assert spec and spec.loader
    plugin = module_from_spec(spec)
    spec.loader.exec_module(plugin)
    for name in ("library", "src/ours", "roles/one"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name, value in {
        "DEFAULT_MODULE_PATH": [str(tmp_path / "library")],
        "DEFAULT_MODULE_UTILS_PATH": [str(tmp_path / "src")],
        "DEFAULT_ROLES_PATH": [str(tmp_path / "roles")],
    }.items():
        monkeypatch.setattr(plugin.constants, name, value)
    return plugin


@pytest.mark.parametrize("source", ["library/one.py", "src/ours/one.py"])
def test_each_source_counts(preload: ModuleType, tmp_path: Path, source: str) -> None:
    empty = preload.kept_place(tmp_path)
    (tmp_path / source).write_text("one = 1\n")
    first = preload.kept_place(tmp_path)
    assert first == preload.kept_place(None) != empty
    (tmp_path / source).write_text("one = 12\n")
    second = preload.kept_place(tmp_path)
    assert second != first
    # The lock of an editor, a link that leads nowhere, hides no other file.
    (tmp_path / source).with_name(".#one.py").symlink_to("nowhere")
    locked = preload.kept_place(tmp_path)
    (tmp_path / source).write_text("one = 123\n")
    assert locked not in (None, first, second, preload.kept_place(tmp_path))


@pytest.mark.parametrize("place", ["plays/library", "plays/module_utils", "roles/one/library"])
def test_modules_that_are_not_always_found_leave_none_kept(
    preload: ModuleType, tmp_path: Path, place: str
) -> None:
    assert preload.kept_place(tmp_path / "plays")
    (tmp_path / place).mkdir(parents=True)
    assert preload.kept_place(tmp_path / "plays") is None


def test_archives_are_kept_whole_and_those_of_collections_not(
    preload: ModuleType, tmp_path: Path
) -> None:
    built, again, kept = (
        tmp_path / "built",
        tmp_path / "again",
        tmp_path / "home/vllm-ansible/modules/key",
    )
    built.mkdir()
    names = ["ansible.legacy.one-ZIP-none", "ansible.modules.stat-ZIP-none"]
    refused = ["ansible_collections.a.b.c-ZIP-none", f"{names[0]}.lock", f"{names[1]}-part"]
    for name in [*names, *refused]:
        (built / name).write_text(name)
    old, others = kept.with_name("old"), kept.with_name("others")
    old.mkdir(parents=True)
    others.mkdir()
    os.utime(old, (0, 0))
    preload.keep(built, kept)
    preload.give(kept, again)
    assert sorted(one.name for one in again.iterdir()) == names
    assert all(one.read_text() == one.name for one in again.iterdir())
    assert sorted(one.name for one in kept.parent.iterdir()) == ["key", "others"]
