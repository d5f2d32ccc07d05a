"""A lab for the tests of this directory, or the reason why there can be none."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_ansible.lab import Lab


@pytest.fixture(scope="session")
def make_lab(real_hosts: None) -> Callable[..., Lab]:
    return Lab.create


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root: Path = tmp_path_factory.mktemp("lab")
    with make_lab(2, "test", second_network=True, root=root) as made:
        yield made
