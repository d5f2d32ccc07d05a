"""A host that reaches no packages is told so before its engines load, with what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import warm

ROOT = Path(__file__).parents[3]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
BOOK = [
    {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": {"name": "router", "tasks_from": "ready"}}],
    }
]


def ready(place: Path, *words: str, **variables: object) -> subprocess.CompletedProcess[str]:
    book = place / "book.yml"
    book.write_text(yaml.safe_dump(BOOK))
    # Debian's own module would install python3-apt here: that of another family fails alike.
    given = {
        "router_wanted": [{"engine": "chat"}],
        "router_package_names": ["vllm-ansible-is-no-package"],
        "router_haproxy": str(place / "haproxy"),
        "sources_environment": {},
        "ansible_python_interpreter": warm.python(),
        "site_host": {"distribution": "rocky", "privileges": "root", "pid1": "", "cluster_dir": ""},
    }
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    command = [str(PLAYBOOK), str(book), "-i", "localhost,", "-c", "local", *words]
    return subprocess.run(
        [*command, "-e", json.dumps({**given, **variables})],
        env=environment,
        cwd=place,
        capture_output=True,
        text=True,
    )


def test_packages_that_cannot_be_had_are_one_error_with_its_way_out(tmp_path: Path) -> None:
    ran = ready(tmp_path)
    said = " ".join((ran.stdout + ran.stderr).split())
    assert ran.returncode == 2
    assert "a repository of the distribution that localhost reaches" in said
    assert "router_mode: never" in said


@pytest.mark.parametrize("case", ["there", "not wanted", "without root", "check"])
def test_nothing_is_installed_where_nothing_is_to_be(tmp_path: Path, case: str) -> None:
    if case == "there":
        (tmp_path / "haproxy").touch()
    host = {"distribution": "rocky", "privileges": "none", "pid1": "", "cluster_dir": ""}
    variables: dict[str, object] = {
        "not wanted": {"router_wanted": []},
        "without root": {"site_host": host},
    }.get(case, {})
    ran = ready(tmp_path, *(["--check"] if case == "check" else []), **variables)
    assert ran.returncode == 0, ran.stdout


def test_the_stage_installs_before_it_starts_engines() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/serve.yml").read_text())[1:]
    names = [one["name"] for one in play["tasks"]]
    place = names.index("Install what a router needs before engines load")
    assert place < names.index("Start the engines")
