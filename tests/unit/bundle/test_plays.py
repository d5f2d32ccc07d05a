"""Playbooks refuse a bundle before all else, and bring it to a host that does not see it."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path

import yaml

from tests import warm

from .conftest import Project

ROOT = Path(__file__).parents[3]
COPY = [
    {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": {"name": "host", "tasks_from": "bundle"}}],
    }
]


def unpacked(project: Project) -> Path:
    with tarfile.open(project.directory / "mine.tar") as archive:
        # Python 3.11.2, Debian 12's, has no filters yet.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(project.directory)  # noqa: S202  the bundle was made here
    return project.directory / "mine"


def play(book: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # The record of a run would lie beside the project.
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    return warm.play([book, *words], Path.cwd(), environment)


def test_every_playbook_refuses_a_damaged_bundle_before_it_asks_for_a_model(
    project: Project,
) -> None:
    bundle = unpacked(project)
    (bundle / "wheels/hosts/four-1.0-py3-none-any.whl").write_bytes(b"")
    # Of a model of the hub the configuration would be asked for next.
    engines = {"engines": [{"name": "a", "model": "org/name"}], "sources_bundle": str(bundle)}
    ran = play(
        ROOT / "playbooks/validate.yml",
        *("-i", str(ROOT / "inventories/local"), "-e", json.dumps(engines)),
    )
    said = " ".join(ran.stdout.split())
    assert ran.returncode != 0
    assert "the bundle is damaged: wheels/hosts/four-1.0-py3-none-any.whl" in said
    assert "hub" not in said


def test_a_host_that_does_not_see_the_bundle_gets_its_packages_once(
    project: Project, tmp_path: Path
) -> None:
    bundle, copy, book = unpacked(project), tmp_path / "copy", tmp_path / "book.yml"
    book.write_text(yaml.safe_dump(COPY))
    copy.mkdir()
    given = {"sources_bundle": str(bundle), "site_bundle_copy": str(copy)}
    variables = yaml.safe_load((ROOT / "roles/site/vars/main.yml").read_text())
    given |= {name: variables[name] for name in ("site_bundle", "site_bundle_sums")}
    changes = []
    for half in (False, False, True):
        if half:
            (copy / "SHA256SUMS").unlink()
            (copy / "wheels/hosts/four-1.0-py3-none-any.whl").write_bytes(b"half")
        ran = play(book, "-e", json.dumps(given))
        assert ran.returncode == 0, ran.stdout + ran.stderr
        changes.append("changed=0" not in ran.stdout)
        for name in ("SHA256SUMS", "wheels/hosts/four-1.0-py3-none-any.whl"):
            assert (copy / name).read_bytes() == (bundle / name).read_bytes()
    assert changes == [True, False, True]
    assert not (copy / "wheels/controller").exists()
