"""A lab for the tests of this directory, or the reason why there can be none."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_ansible.lab import Lab
from vllm_ansible.lab.commands import missing_tools
from vllm_ansible.lab.lab import TOOLS


def why_not() -> str:
    """Say what this machine lacks for a lab, or nothing."""
    if os.geteuid() != 0:
        return f"the lab needs root, this is uid {os.geteuid()}"
    missing = missing_tools(TOOLS)
    return f"the lab needs {', '.join(missing)}" if missing else ""


@pytest.fixture(scope="session")
def make_lab() -> Callable[..., Lab]:
    if reason := why_not():
        pytest.skip(reason)
    return Lab.create


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root: Path = tmp_path_factory.mktemp("lab")
    with make_lab(2, "test", second_network=True, root=root) as made:
        yield made
