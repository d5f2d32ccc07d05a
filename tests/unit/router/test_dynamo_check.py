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
