"""HAProxy asks Dynamo whether it lives, not how etcd is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

VARIABLES = Path(__file__).parents[3] / "roles/router/vars/main.yml"


@pytest.mark.parametrize(
    ("told", "path"),
    [
        ({"dynamo": {"port": 20003}}, "/live"),
        ({"dynamo": {}}, "/health"),
        # A plan of before there was Dynamo.
        ({}, "/health"),
    ],
)
def test_dynamo_is_asked_at_a_page_that_does_not_wait_for_etcd(
    told: dict[str, Any], path: str
) -> None:
    expression = yaml.safe_load(VARIABLES.read_text())["router_check_path"]
    shown = jinja2.Environment(autoescape=False).from_string(expression)  # noqa: S701 - no page
    assert shown.render(__router_one=told) == path


def test_the_password_of_a_dynamo_goes_with_it_and_that_of_another_stays(
    tmp_path: Path, play: Any
) -> None:
    tasks = yaml.safe_load((VARIABLES.parents[1] / "tasks/main.yml").read_text())
    (task,) = [one for one in tasks if one["name"].startswith("Remove what a Dynamo")]
    for name in ("dynamo0", "dynamo1", "router1"):
        (tmp_path / "run" / name).mkdir(parents=True)
        (tmp_path / "run" / name / "password").write_text("secret")
    host = {
        "site_host": {"run_dir": str(tmp_path / "run")},
        "router_as_service": [],
        "router_dynamo_strays": ["old-etcd"],
        "router_dynamo_kept": yaml.safe_load(VARIABLES.read_text())["router_dynamo_kept"],
        "router_beside": [{"index": 0}],
    }
    # Nothing is looked for where nothing is left.
    clean = {**host, "router_dynamo_strays": []}
    played = play([task], {"here": host, "clean": clean}).tasks[task["name"]]
    assert played["here"]["changed"] and played["clean"]["skipped"]
    assert sorted(one.name for one in (tmp_path / "run").iterdir()) == ["dynamo0", "router1"]
