"""Words on the command line that nothing reads, or that would mean the opposite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.warm import PLAYBOOK
from vllm_ansible.inventory.command_line import tags_of, unknown_tags

from .test_inventory import ENGINE, ROOT, play

BOOKS = sorted([ROOT / "site.yml", *(ROOT / "playbooks").glob("*.yml")])
LOCAL = {"n1": {"ansible_connection": "local"}}


def first_words(book: Path) -> str:
    """Return what a playbook does first, after it has seen to Ansible's own settings."""
    pages = yaml.safe_load(book.read_text())
    first = next(one for one in pages if one.get("import_playbook") != "checks/settings.yml")
    if imported := first.get("import_playbook"):
        return first_words(book.parent / imported)
    tasks = first.get("pre_tasks") or first["tasks"]
    # A play that ends at once lets nothing through.
    task = next(one for one in tasks if one.get("ansible.builtin.meta") != "end_play")
    return json.dumps({key: task[key] for key in task if key != "name"})


@pytest.mark.parametrize("book", BOOKS, ids=lambda path: path.stem)
def test_every_playbook_checks_what_it_was_given_before_anything_else(book: Path) -> None:
    words = first_words(book)
    checks = ("check_inventory", "tasks/check.yml", "tasks/command_line.yml", '"stage"', '"load"')
    assert any(check in words for check in checks), words


@pytest.mark.parametrize("book", BOOKS, ids=lambda path: path.stem)
def test_every_playbook_knows_its_own_tags_and_refuses_others(book: Path) -> None:
    known = sorted(tags_of(book))
    assert known
    asked = {"--tags": [",".join(known), "all"], "--skip-tags": known[:1]}
    assert unknown_tags(asked, known, book.name) == []
    tag = next(one for one in known if one != "always")
    slip = tag[:-2] + tag[-1]
    (problem,) = unknown_tags({"--skip-tags": [f"tagged, {slip}"]}, known, book.name)
    assert (problem.found, problem.where) == (slip, "--skip-tags")
    assert problem.fix == f"did you mean {tag}?" and tag in problem.expected


@pytest.mark.parametrize(
    ("book", "option", "told"),
    [("site.yml", "--tags", "did you mean verify?"), ("playbooks/stop.yml", "--skip-tags", "stop")],
)
def test_a_misspelt_tag_ends_the_run_before_its_first_play(
    tmp_path: Path, book: str, option: str, told: str
) -> None:
    done = play(tmp_path, LOCAL, ROOT / book, option, "verfy", callback="stages")
    assert done.returncode == 1
    assert f"no tag of {book} is called verfy" in done.stderr and told in done.stderr
    assert not (tmp_path / "runs").exists() and "done" not in done.stdout


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("teardown_evrything=true", "did you mean teardown_everything?"),
        ("teardown_everything=perhaps", "must be yes or no (true or false), not 'perhaps'"),
        ("my_own=x", ""),
    ],
)
def test_verbs_refuse_what_nothing_reads(tmp_path: Path, given: str, told: str) -> None:
    hosts = {"n1": {"ansible_connection": "local", "ansible_python_interpreter": "/nowhere"}}
    done = play(tmp_path, hosts, ROOT / "playbooks/teardown.yml", "-e", given, callback="stages")
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    # A name of one's own is not refused: then the play goes on to its host, which has no Python.
    assert told in said and ("Refuse what is given" in said) is bool(told), said


def test_without_this_projects_callbacks_no_text_passes_for_true(tmp_path: Path) -> None:
    done = play(
        tmp_path,
        LOCAL,
        ROOT / "playbooks/teardown.yml",
        *("-e", "teardown_everything=false"),
        environment={"ANSIBLE_CALLBACK_PLUGINS": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "teardown_everything would be read as text" in done.stdout
    assert "export ANSIBLE_CONFIG=" in done.stdout


def test_a_verb_before_any_run_says_that_there_is_no_plan(tmp_path: Path) -> None:
    hosts = {"n1": {**LOCAL["n1"], "ansible_python_interpreter": "{{ ansible_playbook_python }}"}}
    done = play(
        tmp_path,
        hosts,
        ROOT / "playbooks/start.yml",
        callback="stages",
        cluster_name="never-run",
        cluster_dir=str(tmp_path / "cluster"),
        accelerator="cpu",
        privileges="none",
        engines=[{**ENGINE, "model": "random:llama"}],
    )
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "plan.json, which the stage plan writes" in said and "run all of site.yml first" in said
    assert "undefined" not in said


# What ansible-playbook does with playbooks before it looks at a host, in one process for all.
LOADS = """
import json, sys
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.plugins.loader import init_plugin_loader
from ansible.vars.manager import VariableManager

init_plugin_loader()
told = {}
for book in sys.argv[1:]:
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=["localhost,"])
    try:
        Playbook.load(book, VariableManager(loader, inventory), loader)
    except Exception as error:
        told[book] = str(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what Ansible says to each playbook that is started from another directory."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *BOOKS],
        cwd=elsewhere,
        env={**clean, "HOME": str(elsewhere)},
        capture_output=True,
        text=True,
        check=True,
    )
    told: dict[str, str] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("book", BOOKS, ids=lambda path: path.stem)
def test_every_playbook_names_the_missing_settings(complaints: dict[str, str], book: Path) -> None:
    said = complaints.get(str(book), "nothing")
    assert "Ansible does not read the settings of this project" in said, said
    assert f"export ANSIBLE_CONFIG={ROOT}/ansible.cfg" in said


@pytest.mark.parametrize("link", [False, True], ids=["its path", "a link to it"])
def test_from_another_directory_the_missing_settings_are_named(tmp_path: Path, link: bool) -> None:
    checkout = tmp_path / "link" if link else ROOT
    if link:
        checkout.symlink_to(ROOT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}

    def validated(**settings: str) -> subprocess.CompletedProcess[str]:
        inventory = checkout / "inventories/local"
        return subprocess.run(
            [PLAYBOOK, "-i", inventory, checkout / "site.yml", "--tags", "validate"],
            cwd=elsewhere,
            env={**clean, "VLLM_ANSIBLE_RUNS_DIR": str(tmp_path / "runs"), **settings},
            capture_output=True,
            text=True,
            check=False,
        )

    done = validated(HOME=str(elsewhere))
    first = done.stderr.splitlines()[0]
    assert done.returncode != 0 and "was not found" not in done.stderr
    assert "Ansible does not read the settings of this project" in first
    assert f"export ANSIBLE_CONFIG={checkout}/ansible.cfg" in first
    done = validated(ANSIBLE_CONFIG=str(checkout / "ansible.cfg"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_repair_alone_repairs_and_measures_nothing_else() -> None:
    """`--tags repair` was refused, although documented."""
    listed = subprocess.run(
        [
            *(sys.executable, "-m", "ansible.cli.playbook", "site.yml", "--list-tasks"),
            *("-i", "inventories/local", "--tags", "repair"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    tasks = [line for line in listed.splitlines() if "TAGS" in line and "play #" not in line]
    assert any("preflight : Repair what is safe to repair" in task for task in tasks)
    names = ("validate", "always", "repair")
    assert [task for task in tasks if not any(name in task for name in names)] == []
    assert not any(
        role in task for role in ("collectives :", "vllm :", "devices :") for task in tasks
    )
