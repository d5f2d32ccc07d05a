"""The configuration of Prometheus and of its jobs, as the role writes it, is one that it takes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from vllm_ansible.observe.targets import targets

from .test_rules import PROMTOOL, RULES, lacking
from .test_targets import HOSTS, engine

ROLE = Path(__file__).parents[3] / "roles/observe"


def render(name: str, directory: Path) -> str:
    """Return one of the role's templates as Ansible renders it."""

    def lookup(_plugin: str, inner: str) -> str:
        return render(inner, directory)

    shape = jinja2.Template(
        (ROLE / "templates" / name).read_text(), trim_blocks=True, keep_trailing_newline=True
    )
    values: dict[str, Any] = {
        "cluster_name": "r1",
        "observe_interval_seconds": 10,
        "observe_settings_dir": directory,
        "observe_scrape_dir": directory,
        "observe_scrape_key": directory / "key",
        "observe_scrape_api_key": directory / "api_key",
        "observe_user": "observe",
        "observe_prometheus_address": "127.0.0.1",
        "observe_alertmanager_port": 9701,
    }
    return shape.render(**values, lookup=lookup)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return a directory with all that Prometheus reads."""
    found = targets("r1", [engine()], HOSTS, {"a": {"chat-router": {}}}, 29702, ["10.0.0.1:9443"])
    (tmp_path / "targets.json").write_text(json.dumps(found))
    shutil.copy(RULES, tmp_path / "rules.yml")
    for name in ("key", "api_key"):
        (tmp_path / name).write_text("a key\n")
    (tmp_path / "prometheus.yml").write_text(render("prometheus.yml.j2", tmp_path))
    return tmp_path


def check(directory: Path) -> tuple[int, str]:
    assert PROMTOOL is not None
    command = [PROMTOOL, "check", "config", str(directory / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@lacking
def test_prometheus_takes_it_with_rules_and_targets(written: Path) -> None:
    status, said = check(written)
    assert status == 0, said
    assert "31 rules found" in said.replace("SUCCESS: ", "")


@lacking
def test_targets_that_prometheus_cannot_read_are_found(written: Path) -> None:
    """As they were once, with an escaped newline at their end."""
    with (written / "targets.json").open("a") as file:
        file.write("\\n")
    assert check(written)[0] != 0


def test_every_kind_of_target_has_a_job_that_keeps_its_own(written: Path) -> None:
    jobs = yaml.safe_load((written / "prometheus.yml").read_text())["scrape_configs"]
    kept = {job["relabel_configs"][0]["regex"]: job for job in jobs}
    listed = json.loads((written / "targets.json").read_text())
    assert {one["labels"]["job"] for one in listed} == set(kept)
    # Nothing is asked without a key but what has none.
    keyless = {name for name, job in kept.items() if not {"authorization", "basic_auth"} & set(job)}
    assert keyless == {"ray"}
    assert all(kept[name]["scheme"] == "https" for name in ("door", "clients"))
