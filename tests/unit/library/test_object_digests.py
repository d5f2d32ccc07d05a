"""A run that finds digests is joined only by who wants the same ones, found in the same way."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.process import background

Run = Callable[..., int]
PROXY = "http://ann:{}@proxy:3128"


@pytest.fixture
def run(run_module: Callable[..., dict[str, Any]], tmp_path: Path) -> Iterator[Run]:
    """Start to find digests, which lasts, and return the number of the process that does."""
    tasks = str(tmp_path / "tasks")
    variables = {
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AWS_SECRET_ACCESS_KEY": "first",
        "https_proxy": PROXY.format("first"),
    }

    def start(environment: dict[str, str] | None = None, **more: Any) -> int:
        args = {
            "cluster_dir": str(tmp_path),
            "engines": [{"name": "chat", "model": "s3://models/team/tiny"}],
            "models_dir": str(tmp_path / "models"),
            "python": sys.executable,
            "program": {"main.py": "import time; time.sleep(600)"},
            "environment": {**variables, **(environment or {})},
            **more,
        }
        assert run_module("object_digests", args, [])["task"] == "digests"
        status = background.look(tasks, "digests")
        assert status["state"] == "running"
        return int(status["process"]["pid"])

    yield start
    background.stop(tasks, "digests")


@pytest.mark.parametrize(
    "other",
    [
        {"exclude": ["*.bin"]},
        {"include": ["*.json"]},
        {"environment": {"AWS_ENDPOINT_URL": "http://other:9000"}},
        {"environment": {"https_proxy": "http://other:3128"}},
        {"credentials_path": "/etc/other"},
        {"engines": [{"name": "chat", "model": "s3://models/team/other"}]},
    ],
    ids=json.dumps,
)
def test_a_run_that_is_no_longer_wanted_is_stopped(run: Run, other: dict[str, Any]) -> None:
    first = run()
    assert run() == first
    assert run(**other) != first


def test_no_secret_is_part_of_what_tells_runs_apart(run: Run) -> None:
    first = run()
    assert run(environment={"AWS_SECRET_ACCESS_KEY": "second"}) == first
    assert run(environment={"https_proxy": PROXY.format("s@c/ond")}) == first
